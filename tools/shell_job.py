"""A background job of a shell: runs on while other commands come and go."""

import asyncio
import signal
import time
from typing import Final

from tools.errors import InvalidArguments
from tools.output import Output
from tools.sandbox import processes
from tools.sandbox.channel import OutputFifo, Status
from tools.sandbox.sandbox import Sandbox
from tools.sandbox.terminal import Terminal, waiting_for_input

_ROUND_S: Final = 0.004


class Job:
    """`exit_code` is None while it runs, and for good if it was killed with its sandbox (`ended` tells)."""

    def __init__(
        self, id: str, command: str, sandbox: Sandbox, output: Output, stream: OutputFifo | Terminal
    ) -> None:
        self.id = id
        self.command = command
        self.tier = sandbox.tier
        self.output = output
        self.exit_code: int | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.pid: int | None = None
        """The host's pid of the job's own subshell."""
        self.marker = b""
        self.read_until = 0
        """Bytes of its output that were shown to the model."""
        self._sandbox = sandbox
        self._stream = stream
        self._started = time.monotonic()
        self._duration: float | None = None
        sandbox.dead.add_done_callback(self._on_death)

    @property
    def running(self) -> bool:
        return not self.ended.done()

    @property
    def duration_ms(self) -> int:
        lasted = self._duration if self._duration is not None else time.monotonic() - self._started
        return round(lasted * 1000)

    @property
    def where(self) -> str:
        """The file with its output, as commands name it."""
        return self.output.spool.shown_as

    @property
    def inner_pid(self) -> int | None:
        return processes.inner_pid(self.pid) if self.pid is not None else None

    def on_status(self, future: "asyncio.Future[Status]") -> None:
        if not future.cancelled():
            self._finish(future.result().code)

    def _on_death(self, _: object) -> None:
        self._finish(None)

    def _finish(self, code: int | None) -> None:
        if self.running:
            self.exit_code = code
            self._duration = time.monotonic() - self._started
            self.ended.set_result(None)

    def members(self) -> list[int]:
        """Its processes, as far as they can be told from others: everything below its subshell, and what
        carries its mark in the environment."""
        if self.pid is None:
            return []
        below = [self.pid, *processes.descendants(self.pid)]
        strays = processes.descendants(self._sandbox.init, without=self._sandbox.own())
        marked = [pid for pid in strays if processes.environment_has(pid, self.marker)]
        found = dict.fromkeys([*below, *marked])
        return [pid for pid in found if processes.identify(pid) is not None]

    def waiting(self) -> bool:
        """Whether it sleeps in a read from its terminal."""
        return isinstance(self._stream, Terminal) and waiting_for_input(self.members())

    def send(self, text: str) -> None:
        """Type into its terminal. A Ctrl-C in `text` interrupts it.

        Raises:
            InvalidArguments: it has no terminal, ended, or does not read.
        """
        if not isinstance(self._stream, Terminal):
            raise InvalidArguments(f"Job {self.id} has no terminal; start it with tty=true to send input.")
        if not self.running:
            raise InvalidArguments(f"Job {self.id} has ended; there is nothing to send to.")
        if "\x03" in text:
            processes.send(self.members(), signal.SIGINT)
            text = text.replace("\x03", "")
        try:
            self._stream.send(text)
        except BlockingIOError as error:
            raise InvalidArguments(
                f"Job {self.id} does not read its input; what was sent before still waits."
            ) from error

    async def kill(self, patience_s: float = 1.0) -> bool:
        """End it and everything it started; whether nothing was left in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience_s
        while left := self.members():
            processes.send(left, signal.SIGKILL)
            if loop.time() > deadline:
                return False
            await asyncio.sleep(_ROUND_S)
        self._finish(137)
        return True

    async def settle(self, grace_s: float = 0.1) -> None:
        """Read what it printed until now."""
        await self._stream.drain(grace_s if not self.running else 0)

    def close(self) -> None:
        """Let go of its files; its output can be read no more."""
        self._sandbox.dead.remove_done_callback(self._on_death)
        self._finish(None)
        self._stream.close()
        self.output.spool.close()
