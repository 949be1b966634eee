"""What was last seen of every file of a workspace, so that an unchanged one need not be read again.

A file counts as unchanged while its mode, size, times of modification and of change, and inode are the same.
One that changed within a tick of the clock before it was read is not remembered: it could have changed again
without a trace.
"""

import os
import secrets
import struct
import time
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

from tools.snapshots.manifest import ends_chunk

MAGIC: Final = b"etude stat cache 1\n"
TICK_NS: Final = 20_000_000
"""How far the clock that stamps files may lie behind, with a margin."""

_RECORD: Final = struct.Struct("<IQqqQI")
_SUM: Final = 16


class Seen(NamedTuple):
    """A file as it was: its stat, its line of the manifest, and whether a chunk ends behind it."""

    mode: int
    size: int
    modified: int
    changed: int
    inode: int
    line: bytes
    last: bool

    @property
    def name(self) -> str:
        """The name of its content."""
        return self.line.split(b" ", 4)[3].decode("ascii")


def seen(found: os.stat_result, line: bytes, path: bytes) -> Seen:
    return Seen(
        found.st_mode,
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
        found.st_ino,
        line,
        ends_chunk(path),
    )


def is_settled(found: os.stat_result, before_ns: int) -> bool:
    """Whether a later change must show in the stat of a file that was read after `before_ns`."""
    limit = before_ns - TICK_NS
    return found.st_ctime_ns < limit and not limit <= found.st_mtime_ns <= time.time_ns()


def save(path: Path, epoch: int, files: dict[str, Seen]) -> None:
    """Write the cache; it may be lost or cut short by a crash, which `load` notices."""
    pieces = [MAGIC, struct.pack("<Q", epoch)]
    for one in files.values():
        record = _RECORD.pack(one.mode, one.size, one.modified, one.changed, one.inode, len(one.line))
        pieces += (record, one.line)
    content = b"".join(pieces)
    path.parent.mkdir(exist_ok=True, mode=0o700)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content + blake2b(content, digest_size=_SUM).digest())
    os.replace(temporary, path)


def load(path: Path) -> tuple[int, dict[str, Seen]]:
    """The epoch of the store that the cache was written in, and the files; nothing of a broken cache."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return 0, {}
    content, check = content[:-_SUM], content[-_SUM:]
    if not content.startswith(MAGIC) or blake2b(content, digest_size=_SUM).digest() != check:
        return 0, {}
    (epoch,) = struct.unpack_from("<Q", content, len(MAGIC))
    files: dict[str, Seen] = {}
    at = len(MAGIC) + 8
    while at < len(content):
        mode, size, modified, changed, inode, length = _RECORD.unpack_from(content, at)
        at += _RECORD.size
        line = content[at : at + length]
        at += length
        name = line[:-1].split(b" ", 4)[4]
        files[os.fsdecode(name)] = Seen(mode, size, modified, changed, inode, line, ends_chunk(name))
    return epoch, files
