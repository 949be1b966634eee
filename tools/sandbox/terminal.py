"""A pseudo-terminal of a sandbox's own, held from outside."""

import asyncio
import errno
import fcntl
import os
import struct
import termios
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

_TIOCGPTN: Final = 0x80045430
_TIOCSPTLCK: Final = 0x40045431
_READ_CALLS: Final = {"0", "63"}  # read(2) on x86_64 and aarch64
_CHUNK: Final = 65536


class Terminal:
    """One terminal: commands see `name` (inside), we read what they print and type what they read.

    The sandbox's own terminals are reached through its first process, so no descriptor has to be passed in.
    """

    def __init__(self, init: int | None, uid: int, sink: Callable[[bytes], None]) -> None:
        """`init` is the sandbox's first process, None for a terminal of the host."""
        place = Path(f"/proc/{init}/root/dev/pts") if init is not None else Path("/dev/pts")
        self._loop = asyncio.get_running_loop()
        self.sink = sink
        self.ended: asyncio.Future[None] = self._loop.create_future()
        flags = os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
        self._descriptor = os.open(place / "ptmx" if init is not None else "/dev/ptmx", flags)
        fcntl.ioctl(self._descriptor, _TIOCSPTLCK, struct.pack("i", 0))
        number = struct.unpack("i", fcntl.ioctl(self._descriptor, _TIOCGPTN, b"\0" * 4))[0]
        self.name = f"/dev/pts/{number}"
        if init is not None and os.getuid() == 0:
            os.chown(place / str(number), uid, uid)
        self.resize(40, 120)
        self._loop.add_reader(self._descriptor, self._read)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _read(self) -> None:
        self._take()

    def _take(self) -> int:
        if self._descriptor < 0:
            return 0
        try:
            data = os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return -1
        except OSError as error:
            if error.errno != errno.EIO:  # EIO: nobody has it open any more
                raise
            data = b""
        if data:
            self.sink(data)
            return len(data)
        self.close()
        return 0

    async def drain(self, grace_s: float) -> bool:
        """Read what was printed so far, then wait up to `grace_s` for its last user. True if it left."""
        for _ in range(64):
            if self._take() <= 0:
                break
        if not self.ended.done():
            await asyncio.wait((self.ended,), timeout=grace_s)
        return self.ended.done()

    def send(self, text: str) -> None:
        """Type something. Raises `BlockingIOError` when nobody has read what was typed before."""
        os.write(self._descriptor, text.encode("utf-8", "surrogateescape"))

    def close(self) -> None:
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
        if not self.ended.done():
            self.ended.set_result(None)


def waiting_for_input(pids: Iterable[int]) -> bool:
    """Whether one of these processes sleeps in a read from a terminal."""
    for pid in pids:
        try:
            call = Path(f"/proc/{pid}/syscall").read_text().split()
            if call[0] in _READ_CALLS:
                target = os.readlink(f"/proc/{pid}/fd/{int(call[1], 16)}")
                if target.startswith(("/dev/pts/", "/dev/tty")):
                    return True
        except (OSError, IndexError, ValueError):  # running, gone, or not ours to see
            continue
    return False
