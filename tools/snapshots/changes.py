"""What differs between two snapshots; only the parts in which they differ are read."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tools.snapshots.manifest import Entry, chunks_of, parse
from tools.snapshots.objects import Objects


@dataclass(frozen=True, slots=True)
class Change:
    """One path in two states; None = nothing was there."""

    path: bytes
    before: Entry | None
    after: Entry | None


@dataclass(frozen=True, slots=True)
class Changes:
    """Sorted by path. `unknown` counts paths that one of the snapshots does not cover: of them nothing is
    said."""

    changes: tuple[Change, ...]
    unknown: int = 0

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)


def difference(objects: Objects, before: str, after: str) -> Changes:
    """From one snapshot to another.

    Raises:
        UnknownSnapshot, DamagedStore: one of them cannot be read.
    """
    if before == after:
        return Changes(())
    old, new = chunks_of(objects, before), chunks_of(objects, after)
    shared = set(old) & set(new)
    # Chunks that differ have nearly all their lines in common: only the others are parsed.
    gone = set(_lines(objects, old, shared))
    come: list[bytes] = []
    for line in _lines(objects, new, shared):
        if line in gone:
            gone.remove(line)
        else:
            come.append(line)
    return compare(_entries(gone, before), _entries(come, after))


def compare(old: dict[bytes, Entry], new: dict[bytes, Entry]) -> Changes:
    """The same for entries by path."""
    hidden_before = {path for path, entry in old.items() if entry.type == "left_out"}
    hidden_after = {path for path, entry in new.items() if entry.type == "left_out"}
    found: list[Change] = []
    unknown = 0
    for path in sorted(old.keys() | new.keys()):
        one, other = old.get(path), new.get(path)
        if one == other:
            continue
        if (
            path in hidden_before
            or path in hidden_after
            or (one is None and hidden_before and below(path, hidden_before))
            or (other is None and hidden_after and below(path, hidden_after))
        ):
            unknown += 1
        else:
            found.append(Change(path, one, other))
    return Changes(tuple(found), unknown)


def uncovered(objects: Objects, tree: str, paths: Iterable[bytes]) -> set[bytes]:
    """Those of some paths of which a snapshot does not say what lies there, or whether anything does.

    Raises:
        UnknownSnapshot, DamagedStore: it cannot be read.
    """
    hidden: set[bytes] = set()
    for name in chunks_of(objects, tree):
        chunk = objects.read(name)
        if chunk.startswith(b"x ") or b"\0x " in chunk:
            hidden.update(entry.path for entry in parse(chunk, name) if entry.type == "left_out")
    return {path for path in paths if path in hidden or below(path, hidden)}


def below(path: bytes, folders: set[bytes]) -> bool:
    """Whether a path lies in one of the folders."""
    at = path.rfind(b"/")
    while at > 0:
        if path[:at] in folders:
            return True
        at = path.rfind(b"/", 0, at)
    return False


def _lines(objects: Objects, chunks: list[str], but: set[str]) -> Iterator[bytes]:
    for name in chunks:
        if name not in but:
            yield from objects.read(name).split(b"\0")[:-1]


def _entries(lines: Iterable[bytes], tree: str) -> dict[bytes, Entry]:
    return {entry.path: entry for line in lines for entry in parse(line + b"\0", tree)}
