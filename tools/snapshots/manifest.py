"""The manifest of a snapshot: what lay at every path, in pieces that neighbouring snapshots share.

An entry is one line of bytes, `type mode size name path NUL`; entries are sorted by path and cut into chunks
at paths that their own hash chooses, so that a change rewrites the chunk it lies in and nothing else. The
root names the chunks; its name is the name of the snapshot, equal for equal states.
"""

import zlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson

from tools.snapshots.errors import DamagedStore
from tools.snapshots.objects import Batch, Objects
from tools.workspace import content_hash

VERSION: Final = 1
CHUNK_BITS: Final = 63
"""A chunk ends at a path whose checksum has none of these bits: after 64 entries on average."""

Type = Literal["file", "link", "directory", "fifo", "left_out"]

Reason = Literal["dependencies", "too_large", "special", "unreadable", "busy", "git", "budget"]
"""Why a path is not covered. `budget`: there was no time or room for it; the snapshot is then partial."""

_LETTERS: Final[dict[Type, bytes]] = {
    "file": b"f",
    "link": b"l",
    "directory": b"d",
    "fifo": b"p",
    "left_out": b"x",
}
_TYPES: Final[dict[bytes, Type]] = {letter: type for type, letter in _LETTERS.items()}


@dataclass(frozen=True, slots=True)
class Entry:
    """One path. `name` is that of the content (of a link: its target), or the reason of what is left out."""

    path: bytes
    type: Type
    mode: int
    size: int = 0
    name: str = "-"

    def line(self) -> bytes:
        return b"%s %o %d %s %s\0" % (
            _LETTERS[self.type],
            self.mode,
            self.size,
            self.name.encode(),
            self.path,
        )

    @property
    def stored(self) -> bool:
        """Whether it has content in the store."""
        return self.type in ("file", "link")


def ends_chunk(path: bytes) -> bool:
    """Whether a chunk ends behind this path."""
    return not zlib.crc32(path) & CHUNK_BITS


def chunked(lines: Iterable[tuple[bytes, bool]]) -> Iterator[bytes]:
    """Chunks of sorted lines, each given with whether a chunk ends behind it."""
    pending: list[bytes] = []
    for line, last in lines:
        pending.append(line)
        if last:
            yield b"".join(pending)
            pending.clear()
    if pending:
        yield b"".join(pending)


def write(batch: Batch, chunks: Iterable[bytes], known: set[str], covered: int, partial: bool) -> str:
    """Store a manifest and everything else in the batch, then its root; returns the name of the snapshot.

    `covered` counts its paths without those left out; `partial`: some of these for want of time or room.
    `known` are chunks that are stored for sure; afterwards those of this manifest.
    """
    names: list[str] = []
    for chunk in chunks:
        name = content_hash(chunk)
        if name not in known:
            batch.put(chunk, name)
        names.append(name)
    known.clear()
    batch.commit()
    known.update(names)
    root = orjson.dumps({"v": VERSION, "covered": covered, "partial": partial, "chunks": names})
    tree = content_hash(root)
    batch.objects.add_tree(tree, root)
    return tree


def chunks_of(objects: Objects, tree: str) -> list[str]:
    """Names of the chunks of a snapshot. Raises `UnknownSnapshot` and `DamagedStore`."""
    return _root(objects, tree)["chunks"]


def extent(objects: Objects, tree: str) -> tuple[int, bool]:
    """How many paths a snapshot covers, and whether it is partial. Raises as `chunks_of`."""
    root = _root(objects, tree)
    return root["covered"], root["partial"]


def _root(objects: Objects, tree: str) -> dict[str, Any]:
    root = orjson.loads(objects.tree(tree))
    if root.get("v") != VERSION or not root.keys() >= {"covered", "partial", "chunks"}:
        raise DamagedStore(f"The snapshot {tree} was written by another version of Etude: update Etude.")
    return root


def read(objects: Objects, tree: str, only: Collection[bytes] | None = None) -> dict[bytes, Entry]:
    """Every entry of a snapshot by its path, sorted, or `only` those of some paths.

    Raises `UnknownSnapshot` and `DamagedStore`.
    """
    found: dict[bytes, Entry] = {}
    for name in chunks_of(objects, tree):
        chunk = objects.read(name)
        if only is None or any(b" " + path + b"\0" in chunk for path in only):
            entries = parse(chunk, name)
            found.update((one.path, one) for one in entries if only is None or one.path in only)
    return found


def parse(chunk: bytes, name: str) -> Iterator[Entry]:
    """The entries of a chunk."""
    try:
        for line in chunk.split(b"\0")[:-1]:
            letter, mode, size, content, path = line.split(b" ", 4)
            yield Entry(path, _TYPES[letter], int(mode, 8), int(size), content.decode("ascii"))
    except (ValueError, KeyError) as error:
        raise DamagedStore(f"The content {name} is no part of a manifest.") from error
