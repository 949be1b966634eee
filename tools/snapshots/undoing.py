"""Taking back what was changed while what came later stays: planned first, carried out when asked for."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tools.diff import unified_diff
from tools.files import MAX_FILE_BYTES
from tools.merge import Conflict, Hunk, hunks, reverse
from tools.snapshots.applying import Step
from tools.snapshots.beneath import Beneath
from tools.snapshots.changes import Change, difference
from tools.snapshots.manifest import Entry
from tools.snapshots.objects import Objects, batch
from tools.workspace import content_hash

REPLACED: Final = "something else is there now"
TOO_LARGE: Final = "it is too large to be merged"
OWNER_WRITES: Final = 0o644


@dataclass(frozen=True, slots=True)
class FilePlan:
    """What undoing means for one path. `step` is None where nothing is to be done.

    `content` is new content that the store may not hold yet; `diff` shows people what would change.
    """

    path: bytes
    step: Step | None
    conflicts: tuple[Conflict, ...] = ()
    content: bytes | None = None
    diff: str = ""
    added: int = 0
    removed: int = 0


@dataclass(frozen=True, slots=True)
class UndoPlan:
    """A preview; `carry_out` of `tools.snapshots.journal` does its steps."""

    files: tuple[FilePlan, ...]

    @property
    def steps(self) -> list[Step]:
        return [one.step for one in self.files if one.step is not None]

    @property
    def conflicts(self) -> list[tuple[bytes, Conflict]]:
        return [(one.path, conflict) for one in self.files for conflict in one.conflicts]


def between(
    objects: Objects, before: str, after: str, only: Collection[bytes] | None = None
) -> tuple[Change, ...]:
    """The changes from one snapshot to another as what is to be undone. `only`: paths, or folders of them."""
    changes = difference(objects, before, after).changes
    return tuple(change for change in changes if only is None or chosen(change.path, only))


def chosen(path: bytes, only: Collection[bytes]) -> bool:
    """Whether a path is one of these or lies in one of them."""
    return any(path == one or path.startswith(one + b"/") for one in only)


def plan(
    objects: Objects,
    root: Path,
    changes: Sequence[Change],
    only_hunks: Mapping[bytes, Collection[str]] | None = None,
) -> UndoPlan:
    """What has to be done to take these changes back, oldest first given; the last are taken back first.

    `only_hunks` names, per path, the hunks (`tools.merge.hunks`) of its one change that are meant.

    Raises:
        SnapshotError: content of a change is not in the store, or the workspace cannot be read.
        KeyError: there is no such hunk.
    """
    paths: dict[bytes, list[Change]] = {}
    for change in changes:
        paths.setdefault(change.path, []).append(change)
    with Beneath(root) as workspace:
        planned = (
            _file(objects, workspace, path, found, None if only_hunks is None else only_hunks.get(path))
            for path, found in sorted(paths.items())
        )
        return UndoPlan(tuple(one for one in planned if one is not None))


def store_contents(objects: Objects, plan: UndoPlan) -> None:
    """Put the new contents of a plan into the store, and what they replace."""
    with objects.shared(), batch(objects) as new:
        for one in plan.files:
            if one.content is not None:
                new.put(one.content)
        new.commit()


def _file(
    objects: Objects,
    workspace: Beneath,
    path: bytes,
    changes: list[Change],
    only: Collection[str] | None,
) -> FilePlan | None:
    now = workspace.state(path)
    if any(
        side is not None and side.type == "directory" for one in changes for side in (one.before, one.after)
    ):
        return _folder(path, now, changes)
    wanted, conflicts, content = now, list[Conflict](), None
    for change in reversed(changes):
        before, after = change.before, change.after
        if wanted == before and only is None:
            continue
        if _same_content(wanted, after) and only is None:
            # Nobody has touched it since: it becomes what it was, whatever kind of file that is.
            wanted, content = _as_before(before, after, wanted), None
            continue
        found = _merged(objects, workspace, path, change, wanted, content, only)
        if isinstance(found, Conflict):
            conflicts.append(found)
            continue
        data, several = found
        conflicts += several
        if data is None:
            wanted, content = None, None
            continue
        mode = _mode(before, after, wanted)
        wanted, content = Entry(path, "file", mode, len(data), content_hash(data)), data
    if wanted == now:
        return FilePlan(path, None, tuple(conflicts)) if conflicts else None
    return _shown(objects, workspace, path, now, wanted, conflicts, content)


def _merged(
    objects: Objects,
    workspace: Beneath,
    path: bytes,
    change: Change,
    wanted: Entry | None,
    content: bytes | None,
    only: Collection[str] | None,
) -> tuple[bytes | None, tuple[Conflict, ...]] | Conflict:
    sides = (change.before, change.after, wanted)
    if any(side is not None and side.type != "file" for side in sides):
        return Conflict(1, why=REPLACED)
    if any(side is not None and side.size > MAX_FILE_BYTES for side in sides):
        return Conflict(1, why=TOO_LARGE)
    before, after = (None if side is None else objects.read(side.name) for side in sides[:2])
    if content is None and wanted is not None:
        content = workspace.read(path) if wanted == workspace.state(path) else objects.read(wanted.name)
    merged = reverse(before, after, content, only)
    return merged.data, merged.conflicts


def _folder(path: bytes, now: Entry | None, changes: list[Change]) -> FilePlan | None:
    """Folders come back, and go where they are empty by then; their modes follow."""
    wanted = changes[0].before
    after = changes[-1].after
    if now == wanted:
        return None
    kinds = {side.type for side in (now, wanted, after) if side is not None}
    if kinds != {"directory"}:
        if now == after:
            return FilePlan(path, Step(path, now, wanted))
        return FilePlan(path, None, (Conflict(1, why=REPLACED),))
    if now is None and after is not None:
        return None  # somebody has removed it since
    if now is not None and wanted is not None and after is not None and now.mode != after.mode:
        return None  # somebody has changed its mode since
    return FilePlan(path, Step(path, now, wanted))


def _shown(
    objects: Objects,
    workspace: Beneath,
    path: bytes,
    now: Entry | None,
    wanted: Entry | None,
    conflicts: list[Conflict],
    content: bytes | None,
) -> FilePlan:
    sides: list[bytes | None] = []
    for side in (now, wanted):
        if side is None or side.type != "file" or side.size > MAX_FILE_BYTES:
            sides.append(None)
        elif side is now:
            sides.append(workspace.read(path))
        else:
            sides.append(content if content is not None else objects.read(side.name))
    text, added, removed = unified_diff(sides[0], sides[1], path.decode("utf-8", "replace"))
    return FilePlan(path, Step(path, now, wanted), tuple(conflicts), content, text, added, removed)


def _same_content(one: Entry | None, other: Entry | None) -> bool:
    if one is None or other is None:
        return one is other
    return (one.type, one.name) == (other.type, other.name)


def _as_before(before: Entry | None, after: Entry | None, now: Entry | None) -> Entry | None:
    """The state before a change; a mode that was set since stays."""
    if before is None or before.type != "file" or now is None:
        return before
    return replace(before, mode=_mode(before, after, now))


def _mode(before: Entry | None, after: Entry | None, now: Entry | None) -> int:
    if now is None or after is None or now.mode == after.mode:
        return before.mode if before is not None else now.mode if now is not None else OWNER_WRITES
    return now.mode


def file_sides(
    path: bytes, before: tuple[str, int] | None, after: tuple[str, int] | None, mode: int | None
) -> Change:
    """A change of one file as the log keeps it: `(hash, size)` of both sides, and the mode it was given."""
    bits = OWNER_WRITES if mode is None else mode

    def entry(side: tuple[str, int] | None) -> Entry | None:
        return None if side is None else Entry(path, "file", bits, side[1], side[0])

    return Change(path, entry(before), entry(after))


def hunks_of(objects: Objects, change: Change) -> tuple[Hunk, ...]:
    """The hunks of a change of a text file."""
    sides = (change.before, change.after)
    before, after = (None if side is None else objects.read(side.name) for side in sides)
    return hunks(before, after)
