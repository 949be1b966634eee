"""Between the server and the shells inside a sandbox: commands go down one pipe, statuses come up another,
output comes through one FIFO per command. None of it shares a stream with what commands print."""

import asyncio
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

_CHUNK: Final = 256 * 1024
_PIPE_BYTES: Final = 1024 * 1024
_FIELDS_BYTES: Final = 8192
_F_SETPIPE_SZ: Final = 1031


class Status(NamedTuple):
    """How a command ended: its exit code, and a text (the shell's folder)."""

    code: int
    text: bytes


class StatusReader:
    """Reads `NUL token NUL code NUL text NUL` records.

    Commands may write to this pipe too (a process can reach its parent's descriptors), so nothing in it is
    trusted but a record with a token that was expected; the rest is dropped. Memory is bounded.
    """

    def __init__(self, descriptor: int, on_shell_exit: Callable[[int], None]) -> None:
        self._descriptor = descriptor
        self._on_shell_exit = on_shell_exit
        self._expected: dict[bytes, asyncio.Future[Status]] = {}
        self._buffer = bytearray()
        self._loop = asyncio.get_running_loop()
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._read)

    def expect(self, token: bytes) -> "asyncio.Future[Status]":
        """The record with this token, whenever it comes. Cancel the future to stop expecting it."""
        future: asyncio.Future[Status] = self._loop.create_future()
        self._expected[token] = future
        future.add_done_callback(lambda _: self._expected.pop(token, None))
        return future

    def close(self) -> None:
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
        for future in list(self._expected.values()):
            future.cancel()

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, 65536)
        except BlockingIOError:
            return
        if not data:  # every writer is gone: the sandbox's own end is noticed elsewhere
            self._loop.remove_reader(self._descriptor)
            return
        self._buffer += data
        tokens = (b"exit", *self._expected)
        for token in tokens:
            self._take(token)
        partial = [self._buffer.find(b"\0" + token + b"\0") for token in tokens]
        keep = min([begin for begin in partial if begin >= 0], default=len(self._buffer) - 64)
        del self._buffer[: max(keep, 0)]

    def _take(self, token: bytes) -> None:
        """Resolve and remove complete records with this token."""
        mark = b"\0" + token + b"\0"
        while (begin := self._buffer.find(mark)) >= 0:
            start = begin + len(mark)
            fields = bytes(self._buffer[start : start + _FIELDS_BYTES]).split(b"\0", 2)
            if len(fields) < 3:
                if len(self._buffer) - start < _FIELDS_BYTES:
                    return  # the rest is still to come
                del self._buffer[:start]
                continue
            del self._buffer[begin : start + len(fields[0]) + 1 + len(fields[1]) + 1]
            if fields[0].isdigit() and len(fields[0]) <= 10:
                self._resolve(token, Status(int(fields[0]), fields[1]))

    def _resolve(self, token: bytes, status: Status) -> None:
        if token == b"exit":
            self._on_shell_exit(status.code)
            return
        future = self._expected.get(token)
        if future is not None and not future.done():
            future.set_result(status)


class OutputFifo:
    """The output of one command: a FIFO that ends when nobody holds it any more.

    `sink` gets each chunk. `ended` resolves at end of file, when every process that could still write is
    gone. Make it before the command starts.
    """

    def __init__(self, path: Path, sink: Callable[[bytes], None], size: int = _PIPE_BYTES) -> None:
        self._loop = asyncio.get_running_loop()
        self._path = path
        self.sink = sink
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._later: asyncio.TimerHandle | None = None
        os.mkfifo(path, 0o600)
        os.chmod(path, 0o622)
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.fcntl(self._descriptor, _F_SETPIPE_SZ, size)
        except OSError:  # over this account's share of pipe memory: the default size works, slower
            pass
        self._loop.add_reader(self._descriptor, self._read)

    def _read(self) -> None:
        self._take()

    def _take(self) -> int:
        """Read one chunk; its length, 0 at the end, -1 when there is nothing now."""
        if self._descriptor < 0:
            return 0
        try:
            data = os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return -1
        if data:
            self.sink(data)
            return len(data)
        self.close()
        return 0

    async def drain(self, grace_s: float) -> bool:
        """Read what was written so far, then wait up to `grace_s` for the end. True if it came."""
        for _ in range(2 * _PIPE_BYTES // _CHUNK):  # what a full pipe holds; a survivor may write for ever
            if self._take() <= 0:
                break
        if not self.ended.done():
            await asyncio.wait((self.ended,), timeout=grace_s)
        return self.ended.done()

    def throttle(self, every_s: float = 0.1) -> None:
        """From now on read one chunk per interval: a process left behind can go on writing without being
        killed for it, and without keeping us busy."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            self._later = self._loop.call_later(every_s, self._read_later, every_s)

    def _read_later(self, every_s: float) -> None:
        if self._take() == -1 and self._descriptor >= 0:
            # Nothing to read: sleep until there is, without polling.
            self._loop.add_reader(self._descriptor, self.throttle, every_s)
        elif self._descriptor >= 0:
            self._later = self._loop.call_later(every_s, self._read_later, every_s)

    def close(self) -> None:
        """Stop reading; whoever still writes gets SIGPIPE."""
        if self._later is not None:
            self._later.cancel()
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
            self._path.unlink(missing_ok=True)
        if not self.ended.done():
            self.ended.set_result(None)
