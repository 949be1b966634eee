"""A program on a pseudo-terminal, as a person sees and types it."""

import codecs
import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

_SEQUENCES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[()][AB0]|\x1b[=>]")


class Terminal:
    """`type` keys, `expect` text. `raw` is everything that was written, `shown` without control sequences."""

    def __init__(
        self, command: Sequence[str], *, cwd: Path, env: Mapping[str, str], size: tuple[int, int] = (40, 100)
    ) -> None:
        self.raw = ""
        self.read = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        leader, follower = pty.openpty()
        rows, columns = size
        subprocess.run(["stty", "rows", str(rows), "cols", str(columns)], stdin=follower, check=True)
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**env, "TERM": "xterm-256color"},
            stdin=follower,
            stdout=follower,
            stderr=follower,
            preexec_fn=_own_terminal,
        )
        os.close(follower)
        self.leader = leader

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGHUP)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        os.close(self.leader)

    @property
    def shown(self) -> str:
        return _SEQUENCES.sub("", self.raw).replace("\r\n", "\n")

    def type(self, keys: str) -> None:
        os.write(self.leader, keys.encode())

    def interrupt(self) -> None:
        """Ctrl-C, as the terminal sends it."""
        self.type("\x03")

    def expect(self, text: str, timeout: float = 20) -> str:
        """Wait for `text` after what was expected before; what is shown up to it."""
        deadline = time.monotonic() + timeout
        while (found := self.shown.find(text, self.read)) < 0:
            if time.monotonic() > deadline or not self._pump(0.1):
                raise AssertionError(f"{text!r} was not shown; shown since: {self.shown[self.read :]!r}")
        before, self.read = self.shown[self.read : found], found + len(text)
        return before

    def wait(self, timeout: float = 20) -> int:
        """The exit code, once the program has ended."""
        deadline = time.monotonic() + timeout
        while self.process.poll() is None and time.monotonic() < deadline:
            self._pump(0.05)
        while self._pump(0):
            pass
        return self.process.wait(0.1)

    def _pump(self, seconds: float) -> bool:
        """Read what there is. False once the program has ended and everything was read."""
        if select.select([self.leader], [], [], seconds)[0]:
            try:
                data = os.read(self.leader, 65536)
            except OSError:
                return False
            self.raw += self._decoder.decode(data)
            return bool(data)
        return self.process.poll() is None and seconds > 0


def _own_terminal() -> None:
    import fcntl
    import termios

    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
