"""Who needs what: each owner (a session) has a file that names the snapshots and contents it refers to.

A name is written down before whatever refers to it is stored, so that nothing needed is ever swept.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tools.snapshots.errors import SnapshotError
from tools.snapshots.objects import Objects, checked_name, unwritable

OWNER: Final = re.compile(r"[0-9A-Za-z_-]{1,64}")


def hold(objects: Objects, owner: str, names: Iterable[str]) -> None:
    """Add names to an owner's. One write, so that two processes do not mix their lines."""
    lines = "".join(f"{checked_name(name)}\n" for name in names)
    if not lines:
        return
    try:
        descriptor = os.open(
            _file(objects, owner), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            os.write(descriptor, lines.encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise unwritable(objects.folder, error) from error


def release(objects: Objects, owner: str, heirs: Iterable[str] = ()) -> None:
    """Forget an owner; `heirs` (forks that read its log) get what it had."""
    mine = _file(objects, owner)
    names = _read(mine)
    for heir in heirs:
        hold(objects, heir, names)
    mine.unlink(missing_ok=True)


def owned(objects: Objects, owner: str) -> set[str]:
    """The names an owner refers to."""
    return set(_read(_file(objects, owner)))


def owners(objects: Objects) -> list[tuple[str, float]]:
    """Every owner, and when it last held something (seconds since the epoch)."""
    with os.scandir(_folder(objects)) as found:
        return [(one.name, one.stat(follow_symlinks=False).st_mtime) for one in found]


def held(objects: Objects) -> set[str]:
    """Every name that anybody refers to."""
    return {name for file in _folder(objects).iterdir() for name in _read(file)}


def _read(file: Path) -> list[str]:
    try:
        lines = file.read_text("ascii", "replace").splitlines()
    except FileNotFoundError:
        return []
    # A line that a crash cut short names nothing.
    return list(dict.fromkeys(line for line in lines if re.fullmatch("[0-9a-f]{40}", line)))


def _file(objects: Objects, owner: str) -> Path:
    if OWNER.fullmatch(owner) is None:
        raise SnapshotError(f"{owner[:80]!r} cannot own content: expected letters, digits, `-` and `_`.")
    return _folder(objects) / owner


def _folder(objects: Objects) -> Path:
    folder = objects.folder / "refs"
    folder.mkdir(exist_ok=True, mode=0o700)
    return folder
