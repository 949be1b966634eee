"""The store of snapshots: one folder, shared by all workspaces and processes of a user.

Nothing in it is ever shown: contents are true bytes, and whoever reads them for a socket, an export or a task
redacts them first. All work is done in threads.
"""

import asyncio
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

from tools.merge import Hunk
from tools.snapshots import manifest, references, undoing
from tools.snapshots.applying import Applied, Step
from tools.snapshots.changes import Change, Changes, difference, uncovered
from tools.snapshots.errors import RestoreRefused
from tools.snapshots.journal import carry_out, finish
from tools.snapshots.manifest import Entry
from tools.snapshots.objects import Objects, batch, unwritable
from tools.snapshots.sweeping import Swept, sweep
from tools.snapshots.taking import Known, Snapshot, take
from tools.snapshots.undoing import UndoPlan
from tools.snapshots.walk import Limits

LOOKS: Final = 2
"""Workspaces that are looked at, restored or swept at the same time."""

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore or an undo did. `before` is the snapshot of what was there: going back undoes this.

    `changed` are the paths that are as wanted now; `kept` were left alone, each with the reason.
    """

    before: Snapshot
    changed: tuple[bytes, ...]
    kept: tuple[tuple[bytes, str], ...]


class SnapshotStore:
    """`SnapshotStore(folder)`; the folder is made on first use, readable by its owner only."""

    def __init__(self, folder: Path, limits: Limits | None = None) -> None:
        self.folder, self.limits = folder, limits or Limits()
        self._objects: Objects | None = None
        self._known: dict[Path, Known] = {}
        self._lock = threading.Lock()
        # Whole looks at a workspace take seconds where it is large: they must not keep short work waiting.
        self._looks = ThreadPoolExecutor(LOOKS, "snapshots")

    # ---- content

    async def put(self, content: bytes) -> str:
        """Keep content durably; returns its name. Raises `SnapshotError`."""
        return (await self.put_all((content,)))[0]

    async def put_all(self, contents: Sequence[bytes]) -> list[str]:
        """The same for several, in their order."""
        return await self._run(self._put_all, contents)

    async def read(self, name: str) -> bytes:
        """Content by its name: true bytes, never to be shown as they are. Raises `UnknownSnapshot`."""
        return await self._run(lambda: self.objects.read(name))

    # ---- states

    async def take(self, root: Path, limits: Limits | None = None) -> Snapshot:
        """The present state of a workspace. What is not covered is said in `left_out`.

        Raises:
            SnapshotError: the workspace cannot be read, or the store not be written.
        """
        return await self._look(self._take, root, limits or self.limits)

    async def entries(self, tree: str, only: Collection[bytes] | None = None) -> dict[bytes, Entry]:
        """Every path of a snapshot, or `only` some of them. Raises `UnknownSnapshot`."""
        return await self._run(lambda: manifest.read(self.objects, tree, only))

    async def diff(self, before: str, after: str) -> Changes:
        """What differs between two snapshots. Raises `UnknownSnapshot`."""
        return await self._run(lambda: difference(self.objects, before, after))

    async def uncovered(self, tree: str, paths: Collection[bytes]) -> set[bytes]:
        """Those of some paths that a snapshot left out: of them it says nothing. Raises `UnknownSnapshot`."""
        return await self._run(lambda: uncovered(self.objects, tree, paths))

    async def restore(self, root: Path, tree: str, only: Collection[bytes] | None = None) -> Restored:
        """Make a workspace what it was. `only` are paths, or folders with what is in them.

        What is there now is kept in a snapshot first. Paths that either state does not cover, and files that
        appear meanwhile, are left alone.

        Raises:
            RestoreRefused: the snapshot is empty, or partial and `only` is not given.
            SnapshotError: it cannot be read, or the workspace not be written.
        """
        return await self._look(self._restore, root, tree, only)

    async def undo(
        self,
        root: Path,
        changes: Sequence[Change],
        only_hunks: Mapping[bytes, Collection[str]] | None = None,
    ) -> UndoPlan:
        """What taking changes back would do; nothing is changed. See `tools.snapshots.undoing.plan`."""
        return await self._run(lambda: undoing.plan(self.objects, root, changes, only_hunks))

    async def undo_changes(
        self, root: Path, before: str, after: str, only: Collection[bytes] | None = None
    ) -> UndoPlan:
        """The same for what differs between two snapshots."""
        return await self._run(
            lambda: undoing.plan(self.objects, root, undoing.between(self.objects, before, after, only))
        )

    async def hunks(self, change: Change) -> tuple[Hunk, ...]:
        """The changed ranges of a change of a text file. Raises `UnknownSnapshot`."""
        return await self._run(lambda: undoing.hunks_of(self.objects, change))

    async def apply(self, root: Path, plan: UndoPlan) -> Restored:
        """Carry out a plan. A path that changed since it was planned is left alone.

        Raises:
            SnapshotError: the store or the workspace cannot be written.
        """
        return await self._look(self._apply, root, plan)

    async def finish(self, root: Path) -> list[tuple[dict[str, Any], Applied]]:
        """Finish restores and undos that a crash broke off: what each was (`{"restore": tree}` or
        `{"undo": tree}`) and what was done. Call it before a workspace is used."""
        return await self._run(lambda: list(finish(self.objects, root)))

    # ---- who needs what

    async def hold(self, owner: str, names: Iterable[str]) -> None:
        """Keep snapshots and contents for as long as an owner exists. Call it before they are referred to."""
        await self._run(references.hold, self.objects, owner, tuple(names))

    async def release(self, owner: str, heirs: Iterable[str] = ()) -> None:
        """An owner is no more; `heirs` get what it had. `sweep` then deletes what nobody needs."""
        await self._run(references.release, self.objects, owner, tuple(heirs))

    def owners(self) -> list[tuple[str, float]]:
        """Every owner, and when it last held something (seconds since the epoch). Blocks."""
        return references.owners(self.objects)

    def owned(self, owner: str) -> set[str]:
        """What an owner holds. Blocks."""
        return references.owned(self.objects, owner)

    async def sweep(
        self, keep: Iterable[str] = (), budget: int | None = None, young_s: float | None = None
    ) -> Swept:
        """Delete what nobody needs; see `tools.snapshots.sweeping.sweep`. `keep` is gone through in a thread,
        while nobody else is in the store."""
        if young_s is None:
            return await self._look(lambda: sweep(self.objects, keep, budget))
        return await self._look(lambda: sweep(self.objects, keep, budget, young_s))

    # ---- what is done in threads

    @property
    def objects(self) -> Objects:
        """The folder, made where it is missing. Blocks: for use in threads."""
        with self._lock:
            if self._objects is None:
                self._objects = Objects(self.folder)
            return self._objects

    async def _run(self, work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        try:
            return await asyncio.to_thread(work, *given, **named)
        except OSError as error:
            raise unwritable(self.folder, error) from error

    async def _look(self, work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._looks, partial(work, *given, **named))
        except OSError as error:
            raise unwritable(self.folder, error) from error

    def _put_all(self, contents: Sequence[bytes]) -> list[str]:
        with self.objects.shared(), batch(self.objects) as new:
            names = [new.put(content) for content in contents]
            new.commit()
            return names

    def _take(self, root: Path, limits: Limits) -> Snapshot:
        with self._lock:
            known = self._known.setdefault(root, Known())
        return take(self.objects, root, known, limits)

    def _restore(self, root: Path, tree: str, only: Collection[bytes] | None) -> Restored:
        _refuse(tree, *manifest.extent(self.objects, tree), only)
        before = self._take(root, self.limits)
        changes: Iterable[Change] = difference(self.objects, before.tree, tree)
        if only is not None:
            changes = _chosen(changes, only)
        steps = [Step(change.path, change.before, change.after) for change in changes]
        return self._changed(root, before, steps, {"restore": tree})

    def _apply(self, root: Path, plan: UndoPlan) -> Restored:
        before = self._take(root, self.limits)
        undoing.store_contents(self.objects, plan)
        return self._changed(root, before, plan.steps, {"undo": before.tree})

    def _changed(self, root: Path, before: Snapshot, steps: Sequence[Step], what: dict[str, Any]) -> Restored:
        done = carry_out(self.objects, root, steps, what)
        return Restored(before, tuple(done.changed), tuple(done.kept))


def _refuse(tree: str, covered: int, partial: bool, only: Collection[bytes] | None) -> None:
    if not covered:
        raise RestoreRefused(
            f"The snapshot {tree} is empty. Restoring it would remove every file; remove them yourself "
            "if that is what you want."
        )
    if only is None and partial:
        raise RestoreRefused(
            f"The snapshot {tree} is partial: there was no time or room for everything. Restore the paths "
            "you need instead."
        )


def _chosen(changes: Iterable[Change], only: Collection[bytes]) -> list[Change]:
    """The chosen changes, and the missing folders that they need to lie in."""
    found = list(changes)
    chosen = [change for change in found if undoing.chosen(change.path, only)]
    needed: set[bytes] = set()
    for change in chosen:
        at = change.path.rfind(b"/")
        while at > 0 and change.after is not None:
            needed.add(change.path[:at])
            at = change.path.rfind(b"/", 0, at)
    missing = [change for change in found if change.path in needed and change.before is None]
    return [*(change for change in missing if change not in chosen), *chosen]
