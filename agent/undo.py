"""Taking back what the agent changed, as a person asked, while every later change stays."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.checkpoints import checkpoint, handled, not_by, places_of
from agent.events import Event, Restored, printable
from agent.session import Session
from tools.errors import InvalidArguments
from tools.snapshots import Change, SnapshotError, SnapshotStore, UndoPlan, file_sides

log = logging.getLogger(__name__)

CONFLICTS = 50
"""Conflicts that one record names."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be taken back: a turn, or one `edit` event; of it perhaps one path, or one hunk: its id (see
    `tools.merge`), or its number from 1."""

    turn: int | None = None
    seq: int | None = None
    path: str | None = None
    hunk: str | int | None = None

    @classmethod
    def of(cls, named: Mapping[str, Any]) -> "Target | None":
        """From what a client names: `{"turn": 3}`, `{"seq": 17, "hunk": "…"}`; None for anything else."""
        turn, seq = named.get("turn"), named.get("seq")
        path, hunk = named.get("path"), named.get("hunk")
        if not (type(turn) is int or type(seq) is int) or (hunk is not None and type(seq) is not int):
            return None
        if not (path is None or isinstance(path, str)) or not (hunk is None or type(hunk) in (str, int)):
            return None
        return cls(turn if type(turn) is int else None, seq if type(seq) is int else None, path, hunk)


@dataclass(frozen=True, slots=True)
class TakenBack:
    """`plan` is what was found to do; `event` the record of having done it, None for a preview."""

    plan: UndoPlan
    event: Event | None = None

    def files(self) -> list[dict[str, Any]]:
        """Per file `{path, diff, added, removed, conflicts}`: true text: redact it before it goes out."""
        return [
            {
                "path": _text(one.path),
                "diff": one.diff,
                "added": one.added,
                "removed": one.removed,
                "conflicts": [
                    {
                        "line": conflict.line,
                        "why": conflict.why,
                        "current": conflict.current,
                        "proposed": conflict.proposed,
                    }
                    for conflict in one.conflicts
                ],
            }
            for one in self.plan.files
        ]


async def take_back(
    session: Session, events: Sequence[Event], target: Target, *, preview: bool = False
) -> TakenBack:
    """Undo what a target names; with `preview` only say what that would do.

    Raises:
        InvalidArguments: there is no such turn, edit or hunk, or nothing is kept of this session's edits.
        SnapshotError: the store or the workspace cannot be read or written.
    """
    store, root = session.workspace.snapshots, session.workspace.root
    if store is None:
        raise InvalidArguments("This session keeps no snapshots, so nothing can be taken back.")
    changes = await agent_changes(store, events, target)
    only = None
    if target.hunk is not None:
        known = [hunk.id for hunk in await store.hunks(changes[0])]
        number = target.hunk if isinstance(target.hunk, int) else 0
        only = {changes[0].path: [known[number - 1] if 0 < number <= len(known) else str(target.hunk)]}
    try:
        plan = await store.undo(root, changes, only)
    except KeyError as error:
        raise InvalidArguments(
            f"The edit has no hunk {target.hunk!r}. Its hunks may have other ids now."
        ) from error
    if preview or not (plan.steps or plan.conflicts):
        return TakenBack(plan)
    done = await store.apply(root, plan)
    now = await store.take(root)
    await store.hold(session.id, [done.before.tree, now.tree])
    record = Restored(
        what="undo",
        target={key: value for key, value in _fields(target) if value is not None},
        before=done.before.tree,
        tree=now.tree,
        changed=[_text(path) for path in done.changed],
        kept=[{"path": _text(path), "why": why} for path, why in done.kept],
        conflicts=[
            {"path": _text(path), "line": conflict.line, "why": conflict.why}
            for path, conflict in plan.conflicts[:CONFLICTS]
        ],
    )
    event = await session.record("restored", record)
    await session.record("checkpoint", checkpoint(now, "restore"))
    return TakenBack(plan, event)


async def finish_changes(session: Session) -> None:
    """Finish what a crash broke off while files of this workspace were being brought back."""
    store, root = session.workspace.snapshots, session.workspace.root
    if store is None:
        return
    try:
        for what, done in await store.finish(root):
            now = await store.take(root)
            await store.hold(session.id, [now.tree])
            record = Restored(
                what="undo" if "undo" in what else "restore",
                target={"finished": True},
                before=session.state.tree or now.tree,
                tree=now.tree,
                changed=[_text(path) for path in done.changed],
                kept=[{"path": _text(path), "why": why} for path, why in done.kept],
            )
            await session.record("restored", record)
            await session.record("checkpoint", checkpoint(now, "restore"))
    except SnapshotError as error:
        log.error("what was broken off in %s could not be finished: %s", root, error)


async def agent_changes(store: SnapshotStore, events: Sequence[Event], target: Target) -> list[Change]:
    """What the agent changed in a turn or by one edit, oldest first.

    Raises:
        InvalidArguments: the log knows no such turn or edit.
    """
    turn = target.turn
    if target.seq is not None:
        edit = next((event for event in events if event.seq == target.seq), None)
        if edit is None or edit.type != "edit":
            raise InvalidArguments(f"Event {target.seq} is no edit of this session.")
        turn = edit.turn
    elif not any(event.turn == turn and event.type == "turn.started" for event in events):
        raise InvalidArguments(f"This session has no turn {turn}.")
    found = _Found(store)
    for event in events:
        if event.turn < (turn or 0):
            if event.type == "checkpoint":
                found.tree = event.data.get("tree") or found.tree
        elif event.turn == turn:
            await found.take_up(event)
    await found.flush()
    wanted = None if target.path is None else target.path.encode("utf-8", "surrogateescape")
    return [
        change
        for seq, change in found.changes
        if (target.seq is None or seq == target.seq) and wanted in (None, change.path)
    ]


@dataclass(slots=True)
class _Found:
    """The fold of a turn's events into the agent's changes, each with the `edit` event it comes from."""

    store: SnapshotStore
    tree: str | None = None
    edits: list[Event] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    """What was deleted or moved since the last checkpoint."""
    changes: list[tuple[int | None, Change]] = field(default_factory=list)

    async def take_up(self, event: Event) -> None:
        if event.type == "edit":
            self.edits.append(event)
        elif event.type == "checkpoint":
            edits = await self.flush()
            before, self.tree = self.tree, event.data.get("tree") or self.tree
            if event.data.get("reason") in ("step", "end") and before and self.tree and before != self.tree:
                if event.data.get("accounted"):
                    changes = (await self.store.diff(before, self.tree)).changes
                    rest = [change for change in changes if _folder(change) or handled(change, self.places)]
                else:
                    rest = await not_by(self.store, before, self.tree, edits)
                self.changes += [(None, change) for change in rest]
            self.places = []
        elif event.type == "tool.result":
            self.places += places_of(event)
        elif event.type == "restored":
            await self.flush()

    async def flush(self) -> dict[str, tuple[str | None, str | None]]:
        """Turn the edits so far into changes; returns them as `theirs` takes them."""
        known: dict[str, tuple[str | None, str | None]] = {}
        edits, self.edits = self.edits, []
        modes = await self._modes(edits)
        for event in edits:
            data = event.data
            path = data["path"].encode("utf-8", "surrogateescape")
            before, after = _side(data.get("before")), _side(data.get("after"))
            mode = data.get("mode")
            if mode is None:
                mode = modes.get(path)
            self.changes.append((event.seq, file_sides(path, before, after, mode)))
            first = known[data["path"]][0] if data["path"] in known else before and before[0]
            known[data["path"]] = first, after and after[0]
        return known

    async def _modes(self, edits: Sequence[Event]) -> dict[bytes, int]:
        """Those of the files of edits that say none, as the last state has them."""
        silent = [edit.data["path"] for edit in edits if edit.data.get("mode") is None]
        if self.tree is None or not silent:
            return {}
        paths = {path.encode("utf-8", "surrogateescape") for path in silent}
        found = await self.store.entries(self.tree, paths)
        return {path: entry.mode for path, entry in found.items() if entry.type == "file"}


def _side(reference: Mapping[str, Any] | None) -> tuple[str, int] | None:
    return None if reference is None else (reference["hash"], reference["size"])


def _folder(change: Change) -> bool:
    return any(side is not None and side.type == "directory" for side in (change.before, change.after))


def _fields(target: Target) -> Iterable[tuple[str, Any]]:
    return (("turn", target.turn), ("seq", target.seq), ("path", target.path), ("hunk", target.hunk))


def _text(path: bytes) -> str:
    return printable(path.decode("utf-8", "surrogateescape"))
