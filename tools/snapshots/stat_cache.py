"""What was last seen of every file of a workspace, so that an unchanged one need not be read again.

A file counts as unchanged while its mode, size, times of modification and of change, and inode are the same.
One that changed within a tick of the clock before it was read is not remembered: it could have changed again
without a trace.
"""

import os
import secrets
import struct
import time
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Final

from tools.snapshots.manifest import ends_chunk

MAGIC: Final = b"etude stat cache 2\n"
TICK_NS: Final = 20_000_000
"""How far the clock that stamps files may lie behind, with a margin."""
TOGETHER: Final = 4096
"""Paths that are written at once."""

_STAT: Final = struct.Struct("<IQqqQ")
_LAST: Final = _STAT.size
_LINE: Final = _LAST + 1
_EPOCH: Final = struct.Struct("<Q")
_LENGTH: Final = struct.Struct("<I")
_SUM: Final = 16

Seen = bytes
"""A path as it was: its stat, whether a chunk of the manifest ends behind it, and its line there.

There may be hundreds of thousands: as bytes they take the least room, and no collector looks at them."""


def seen(line: bytes, path: bytes, stat: bytes = bytes(_STAT.size)) -> Seen:
    """From the line of a path and its `stat_of`; without one, what may not be relied upon next time."""
    return stat + (b"\1" if ends_chunk(path) else b"\0") + line


def stat_of(found: os.stat_result) -> bytes:
    """What tells a file from a changed one; what was `seen` of it begins with it."""
    return _STAT.pack(found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


def stat_of_folder(mode: int) -> bytes:
    """The same for a folder: it is looked into in any case."""
    return _STAT.pack(mode, 0, 0, 0, 0)


def line_of(one: Seen) -> tuple[bytes, bool]:
    """The line of the manifest, and whether a chunk ends behind it."""
    return one[_LINE:], one[_LAST] == 1


def content_of(one: Seen) -> str:
    """The name of the content."""
    return one[_LINE:].split(b" ", 4)[3].decode("ascii")


def is_settled(found: os.stat_result, before_ns: int) -> bool:
    """Whether a later change must show in the stat of a file that was read after `before_ns`."""
    limit = before_ns - TICK_NS
    return found.st_ctime_ns < limit and not limit <= found.st_mtime_ns <= time.time_ns()


def save(path: Path, epoch: int, files: dict[str, Seen]) -> None:
    """Write the cache; it may be lost or cut short by a crash, which `load` notices."""
    digest = blake2b(digest_size=_SUM)
    path.parent.mkdir(exist_ok=True, mode=0o700)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        for piece in _pieces(epoch, files.values()):
            digest.update(piece)
            file.write(piece)
        file.write(digest.digest())
    os.replace(temporary, path)


def _pieces(epoch: int, files: Iterable[Seen]) -> Iterator[bytes]:
    """The content of a cache, little by little: all of it may be as large as what it describes."""
    yield MAGIC + _EPOCH.pack(epoch)
    remaining = iter(files)
    while some := list(islice(remaining, TOGETHER)):
        yield b"".join(part for one in some for part in (_LENGTH.pack(len(one)), one))


def load(path: Path) -> tuple[int, dict[str, Seen]]:
    """The epoch of the store that the cache was written in, and the files; nothing of a broken cache."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return 0, {}
    end = len(content) - _SUM
    check = blake2b(memoryview(content)[: max(end, 0)], digest_size=_SUM).digest()
    if not content.startswith(MAGIC) or end < len(MAGIC) + _EPOCH.size or content[end:] != check:
        return 0, {}
    (epoch,) = _EPOCH.unpack_from(content, len(MAGIC))
    files: dict[str, Seen] = {}
    at = len(MAGIC) + _EPOCH.size
    while at < end:
        (length,) = _LENGTH.unpack_from(content, at)
        at += _LENGTH.size
        one = content[at : at + length]
        at += length
        files[os.fsdecode(one[_LINE:-1].split(b" ", 4)[4])] = one
    return epoch, files
