"""Which processes inside belong to the command that runs now, and which were left by earlier ones."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import Final

from tools.sandbox import processes
from tools.sandbox.processes import Process
from tools.sandbox.sandbox import Sandbox

_ROUND_S: Final = 0.004
_FORK_ROUNDS: Final = 5
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Survivors:
    """Everything a command starts stays below the shell or, once its parent ended, below the sandbox's
    first process, whatever sessions, groups or environments it made for itself. So what is neither ours
    nor was there before the command belongs to it.

    `strays` were there before, but nobody knew of them: background jobs detached them.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self.strays: list[Process] = []
        self._sandbox = sandbox
        self._known: dict[int, Process] = {}
        self._begun = 0

    def begin(self) -> None:
        """A command starts now."""
        self._begun = int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS)

    def spare(self, pid: int) -> None:
        """Count this process and all below it as there before."""
        process = processes.identify(pid)
        if process is not None:
            self._known[pid] = process

    def _unknown(self) -> list[Process]:
        """Living processes that nobody accounts for, parents first."""
        sandbox = self._sandbox
        supervisor = sandbox.supervisor()
        if supervisor is None or processes.identify(supervisor) is None:
            return []  # the whole sandbox is ending
        shell = sandbox.shell()
        spared = sandbox.own() | {pid for pid, known in self._known.items() if processes.alive(known)}
        found = processes.descendants(sandbox.init, without=spared)
        if shell is not None:
            found += processes.descendants(shell, without=spared)
        return [process for pid in found if (process := processes.identify(pid)) is not None]

    def current(self) -> list[int]:
        """Living processes of the command that runs now, parents first."""
        return [process.pid for process in self._unknown() if process.started >= self._begun]

    def settle(self) -> list[Process]:
        """The command ended: what it left behind is spared from now on. Returns what it left."""
        if self._known:
            self._known = {pid: known for pid, known in self._known.items() if processes.alive(known)}
            self.strays = [stray for stray in self.strays if processes.alive(stray)]
        found = self._unknown()
        for process in found:
            self._known[process.pid] = process
        self.strays += [process for process in found if process.started < self._begun]
        return [process for process in found if process.started >= self._begun]

    async def end(self, patience_s: float) -> bool:
        """Kill everything of the command that runs now; whether nothing was left in time."""
        return await self._end(self.current, patience_s)

    async def end_strays(self, patience_s: float) -> bool:
        """Kill what background jobs detached. Only while no command runs: its processes count too."""
        self.settle()
        self._begun = 0

        def left() -> list[int]:
            strays = [stray.pid for stray in self.strays if processes.alive(stray)]
            return strays + self.current()

        return await self._end(left, patience_s)

    async def _end(self, left: Callable[[], list[int]], patience_s: float) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience_s
        while pids := left():
            processes.send(pids, signal.SIGKILL)
            if loop.time() > deadline:
                return False
            await asyncio.sleep(_ROUND_S)
        return True

    async def describe(self, left: Iterable[Process]) -> list[dict[str, object]]:
        """`{pid, command}` of processes, by the numbers that commands inside would use."""
        shell = self._sandbox.shell()
        own = processes.command_line(shell) if shell is not None else ""
        found = []
        for process in left:
            name = processes.command_line(process.pid)
            for _ in range(_FORK_ROUNDS):
                if name != own or not processes.alive(process):
                    break
                await asyncio.sleep(_ROUND_S)  # forked, but not yet what it is going to be
                name = processes.command_line(process.pid)
            if processes.alive(process):
                shown = "(part of the shell)" if name == own else name
                found.append({"pid": processes.inner_pid(process.pid), "command": shown})
        return found
