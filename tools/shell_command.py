"""One command on its way through a shell: waiting for its end, or bringing it about."""

import asyncio
import secrets
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from tools.sandbox import Sandbox, SandboxDied, Tier, processes, scripts
from tools.sandbox.channel import Status
from tools.sandbox.survivors import Survivors
from tools.sandbox.terminal import waiting_for_input

End = Literal["exit", "timeout", "cancelled", "input", "memory", "died"]

_INTERRUPTS_S: Final = (0.1, 0.04)
_ANSWER_S: Final = 0.04
_KILL_S: Final = 0.5
_WATCH_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended and what it printed.

    `exit_code` is None when it was killed together with its sandbox. `ended` says why it ended: by itself
    (`exit`), at its deadline, cancelled, because it waited for input that cannot come, for memory, or with
    the sandbox. `state_lost`: the next command meets a fresh shell. `survivors` are `{pid, command}`.
    `size` is all it printed, in bytes; `full` the whole output where `text` leaves something out.
    """

    exit_code: int | None
    ended: End
    tier: Tier
    cwd: str
    cwd_changed: bool
    duration_ms: int
    text: str
    clipped: bool
    size: int
    full: bytes | None = None
    state_lost: bool = False
    survivors: list[dict[str, object]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Command:
    """`stop` asks it to end; `started` is when it got the shell (monotonic seconds); `ended` is why it is
    over. `shell_exit` resolves if the shell itself ends under it."""

    text: str
    timeout_s: float
    cwd: Path | None
    tty: bool
    progress: Callable[[str], None]
    stop: "asyncio.Future[None]"
    shell_exit: "asyncio.Future[int]"
    started: float | None = None
    ended: End = "exit"

    async def finish(
        self,
        sandbox: Sandbox,
        survivors: Survivors,
        status: "asyncio.Future[Status]",
        memory_bytes: int | None,
    ) -> Status | None:
        """Wait until it is over, ending it when there is a reason to. None if that took the whole sandbox.

        `memory_bytes` is a bound to watch here, where no control group holds it.
        """
        found = await self._wait(sandbox, survivors, status, memory_bytes)
        if found is None and self.ended != "died":
            found = await self._end(sandbox, survivors, status)
        if found is None and self.ended == "exit":
            self.ended = "died"
        return found

    async def _wait(
        self,
        sandbox: Sandbox,
        survivors: Survivors,
        status: "asyncio.Future[Status]",
        memory_bytes: int | None,
    ) -> Status | None:
        assert self.started is not None
        deadline = self.started + self.timeout_s
        watched = self.tty or memory_bytes is not None
        reading = 0
        while True:
            remaining = max(deadline - time.monotonic(), 0)
            await asyncio.wait(
                {status, self.shell_exit, sandbox.dead, self.stop},
                timeout=min(remaining, _WATCH_S) if watched else remaining,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if status.done():
                return status.result()
            if self.shell_exit.done():
                return Status(self.shell_exit.result(), b"")
            if self.tty:
                reading = reading + 1 if _reads(sandbox, survivors) else 0
            over = memory_bytes is not None and _memory(sandbox) > memory_bytes
            reasons: tuple[tuple[bool, End], ...] = (
                (sandbox.dead.done(), "died"),
                (self.stop.done(), "cancelled"),
                (time.monotonic() >= deadline, "timeout"),
                (reading >= 2, "input"),
                (over, "memory"),
            )
            for holds, reason in reasons:
                if holds:
                    self.ended = reason
                    return None

    async def _end(
        self, sandbox: Sandbox, survivors: Survivors, status: "asyncio.Future[Status]"
    ) -> Status | None:
        """An interrupt first, so that the shell keeps its state, then a kill of all the command started,
        then of the shell, then of the sandbox."""
        token = secrets.token_hex(16)
        again = sandbox.statuses.expect(token.encode())
        # After an interrupt the shell drops the rest of the line it was in: ask for its status once more.
        ask = f"\\builtin printf '\\0%s\\0%s\\0%s\\0' {token} 130 \"$PWD\" >&{scripts.STATUS}\n"

        async def answer(timeout_s: float) -> Status | None:
            waiting = {status, again, self.shell_exit, sandbox.dead}
            await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            for future in (status, again):
                if future.done() and not future.cancelled():
                    return future.result()
            return Status(self.shell_exit.result(), b"") if self.shell_exit.done() else None

        try:
            for patience in _INTERRUPTS_S:
                shell = sandbox.shell()
                # The shell first: it gives up its line only if it was told before its child died of it.
                interrupted = [*([shell] if shell is not None else []), *survivors.current()]
                processes.send(interrupted, signal.SIGINT)
                sandbox.tell_shell(ask)
                found = await answer(patience)
                if not await survivors.end(_KILL_S):
                    sandbox.kill()
                    return None
                found = found or await answer(_ANSWER_S)
                if found is not None:
                    return found
            shell = sandbox.shell()
            processes.send([shell] if shell is not None else [], signal.SIGKILL)
            found = await answer(_KILL_S)
            await survivors.end(_KILL_S)
        except SandboxDied:
            return None
        finally:
            again.cancel()
        if found is None:
            sandbox.kill()
        return found


def _reads(sandbox: Sandbox, survivors: Survivors) -> bool:
    shell = sandbox.shell()
    return waiting_for_input([*survivors.current(), *([shell] if shell is not None else [])])


def _memory(sandbox: Sandbox) -> int:
    return sum(map(processes.resident_bytes, processes.descendants(sandbox.init)))
