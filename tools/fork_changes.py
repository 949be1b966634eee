"""What a fork changed: read from the upper layer of its overlay, or by comparing two trees."""

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_OPAQUE = "user.overlay.opaque"
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """One path (relative, POSIX) that differs from the base. `mode` means the permission bits alone. A folder
    that was deleted is one entry for all below it; of an added one everything below is listed too."""

    path: str
    kind: Literal["added", "modified", "mode", "deleted"]


def against_layer(lower: Path, upper: Path) -> list[Change]:
    """Changes that an overlay's upper layer holds, sorted by path."""
    return sorted(_layer(lower, upper, "", False))


def _layer(lower: Path, upper: Path, at: str, new: bool) -> Iterator[Change]:
    """`new`: nothing of the lower layer shows through at this folder."""
    names: set[str] = set()
    with os.scandir(upper / at) as entries:
        listed = list(entries)
    for entry in listed:
        names.add(entry.name)
        path = f"{at}/{entry.name}" if at else entry.name
        now = entry.stat(follow_symlinks=False)
        before = _status(lower / path)
        if stat.S_ISCHR(now.st_mode) and now.st_rdev == 0:
            if before is not None:
                yield Change(path, "deleted")
            continue
        folder = stat.S_ISDIR(now.st_mode)
        if before is None:
            yield Change(path, "added")
        elif folder and stat.S_ISDIR(before.st_mode):
            if stat.S_IMODE(now.st_mode) != stat.S_IMODE(before.st_mode):
                yield Change(path, "mode")
        elif (kind := _difference(lower / path, before, upper / path, now)) is not None:
            yield Change(path, kind)
        if folder:
            hidden = before is None or not stat.S_ISDIR(before.st_mode)
            yield from _layer(lower, upper, path, hidden or _opaque(upper / path))
    if new and (before := _status(lower / at)) is not None and stat.S_ISDIR(before.st_mode):
        for name in os.listdir(lower / at):
            if name not in names:
                yield Change(f"{at}/{name}" if at else name, "deleted")


def against_tree(base: Path, tree: Path) -> list[Change]:
    """Changes between two whole trees, sorted by path."""
    found: list[Change] = []
    waiting = [""]
    while waiting:
        at = waiting.pop()
        before, after = _entries(base / at), _entries(tree / at)
        for name in before.keys() | after.keys():
            path = f"{at}/{name}" if at else name
            old, new = before.get(name), after.get(name)
            if new is None:
                found.append(Change(path, "deleted"))
                continue
            if old is None:
                found.append(Change(path, "added"))
            elif (kind := _difference(base / path, old, tree / path, new)) is not None:
                found.append(Change(path, kind))
            if stat.S_ISDIR(new.st_mode):
                waiting.append(path)
    return sorted(found)


def _difference(
    first: Path, before: os.stat_result, second: Path, now: os.stat_result
) -> Literal["modified", "mode"] | None:
    if stat.S_IFMT(before.st_mode) != stat.S_IFMT(now.st_mode) or not _same(first, before, second, now):
        return "modified"
    return "mode" if stat.S_IMODE(before.st_mode) != stat.S_IMODE(now.st_mode) else None


def _same(first: Path, before: os.stat_result, second: Path, now: os.stat_result) -> bool:
    if stat.S_ISLNK(now.st_mode):
        return os.readlink(first) == os.readlink(second)
    if not stat.S_ISREG(now.st_mode):
        return True
    if before.st_size != now.st_size:
        return False
    with _opened(first) as one, _opened(second) as other:
        while True:
            left, right = one.read(_PIECE), other.read(_PIECE)
            if left != right:
                return False
            if not left:
                return True


def _opened(path: Path):
    return open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0)


def _entries(folder: Path) -> dict[str, os.stat_result]:
    try:
        with os.scandir(folder) as entries:
            return {entry.name: entry.stat(follow_symlinks=False) for entry in entries}
    except (FileNotFoundError, NotADirectoryError):
        return {}


def _status(path: Path) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _opaque(path: Path) -> bool:
    try:
        return os.getxattr(path, _OPAQUE, follow_symlinks=False) == b"y"
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.EOPNOTSUPP):
            return False
        raise
