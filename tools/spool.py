"""A file that holds a stream whole up to a cap, and both its ends beyond."""

import os
from pathlib import Path
from typing import Final

HEAD: Final = 8 * 1024 * 1024
RING: Final = 8 * 1024 * 1024
_MEMORY: Final = 8 * 1024


class Spool:
    """The first 8 MiB and the newest 8 MiB of a stream (16 MiB in all), on disk beyond a few KiB.

    `at_once` makes the file before the first byte, for someone who reads along. A full disk does not stop
    the stream: what could not be kept is said by `describe`.
    """

    def __init__(self, path: Path, shown_as: str | None = None, at_once: bool = False) -> None:
        self.path = path
        self.shown_as = shown_as or str(path)
        self.total = 0
        self._early: bytearray | None = None if at_once else bytearray()
        self._descriptor = -1
        self._failure: str | None = None
        if at_once:
            self._attempt(b"")

    def write(self, data: bytes) -> None:
        if self._early is not None:
            self._early += data
            self.total += len(data)
            if len(self._early) > _MEMORY:
                early, self._early, self.total = bytes(self._early), None, 0
                self._attempt(early)
            return
        self._attempt(data)

    def _attempt(self, data: bytes) -> None:
        if self._failure is None:
            try:
                self._put(memoryview(data))
            except OSError as error:
                self._failure = error.strerror or str(error)
        self.total += len(data)

    def _put(self, data: memoryview) -> None:
        if self._descriptor < 0:
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            self._descriptor = os.open(self.path, flags, 0o644)
            os.fchmod(self._descriptor, 0o644)  # whatever the umask: commands read it from inside
        position = self.total
        while data:
            if position < HEAD:
                offset, room = position, HEAD - position
            else:
                offset = HEAD + (position - HEAD) % RING
                room = HEAD + RING - offset
            written = os.pwrite(self._descriptor, data[:room], offset)
            position += written
            data = data[written:]

    def describe(self) -> str:
        """Where the whole is, in words."""
        if self._failure is not None:
            return f"the rest could not be kept: {self._failure}"
        if self.total > HEAD + RING:
            return f"its first and last {HEAD // 1024 // 1024} MiB are in {self.shown_as}"
        return f"all of it is in {self.shown_as}"

    def finish(self) -> None:
        """Put the file in reading order. Blocks for as long as copying 8 MiB takes."""
        if self._descriptor >= 0 and self.total > HEAD + RING and self._failure is None:
            start = (self.total - HEAD) % RING
            ring = os.pread(self._descriptor, RING, HEAD)
            gap = f"\n[… {self.total - HEAD - RING:,} bytes were not kept …]\n".encode()
            try:
                offset = HEAD
                for part in (memoryview(gap), memoryview(ring)[start:], memoryview(ring)[:start]):
                    offset += os.pwrite(self._descriptor, part, offset)
            except OSError as error:
                self._failure = error.strerror or str(error)

    def content(self) -> bytes:
        """Everything kept, in reading order once `finish` was called."""
        if self._early is not None:
            return bytes(self._early)
        if self._descriptor < 0:
            return b""
        size = os.fstat(self._descriptor).st_size
        return os.pread(self._descriptor, size, 0)

    def since(self, position: int) -> tuple[int, bytes]:
        """What was written from `position` on, as far as it is kept: how many bytes are lost, and the rest.

        Of what is lost, the newest part is kept. Call it before `finish`.
        """
        if self._early is not None:
            return 0, bytes(self._early[position:])
        if self._descriptor < 0 or self._failure is not None:
            return self.total - position, b""
        begun = b""
        if position < HEAD:
            begun = os.pread(self._descriptor, min(HEAD, self.total) - position, position)
            position += len(begun)
        lost = max(self.total - RING - position, 0)
        position += lost
        left = self.total - position
        offset = HEAD + (position - HEAD) % RING
        first = os.pread(self._descriptor, min(left, HEAD + RING - offset), offset) if left else b""
        rest = os.pread(self._descriptor, left - len(first), HEAD) if left > len(first) else b""
        return lost, begun + first + rest

    def close(self, keep_file: bool = False) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        if not keep_file:
            self.path.unlink(missing_ok=True)
