"""The workspace's state in the log: at each prompt's start and after each step that may have changed it.

Who changed what: what differs between the last state a checkpoint knows and the state at the next prompt's
start is not this session's doing and becomes `user_edit` events (it may be a person's, or another session's).
Within a turn, a step that only edits says what it changed, so whatever else differs after it is a person's.
Before a step that runs commands a state is taken as well (unless that takes long), and what differs by then
is a person's; what changes while a command runs is counted as the command's. Nothing is called a person's
where a job of the agent's shell was running between the two states, or where a crash broke off a step between
them.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from agent.events import BlobRef, Checkpoint, CheckpointReason, Event, Generation, UserEdit, printable
from agent.session import Session
from tools.diff import unified_diff
from tools.files import MAX_FILE_BYTES
from tools.history import History
from tools.snapshots import Change, Entry, Limits, Snapshot, SnapshotError, SnapshotStore

log = logging.getLogger(__name__)

PROMPT_LIMITS: Final = Limits(seconds=8.0)
STEP_LIMITS: Final = Limits(seconds=4.0)
NOTE_WAIT_S: Final = 1.0
"""How long the first model call waits for what a person has changed."""
QUICK_MS: Final = 400.0
"""Processor time: a workspace whose last snapshot took longer is not looked at before commands as well."""
FRESH: Final = 200
"""Files read anew from which on a snapshot does not say what the next one costs."""
USER_EDITS: Final = 100
"""`user_edit` events of one checkpoint; more are counted."""
DIFF_BYTES: Final = 256 * 1024
"""Bytes of a file up to which a user's edit is shown as a diff."""
DIFF_CHARACTERS: Final = 20_000
SAYING: Final = frozenset(("edit", "delete", "move"))
"""Kinds of tools that say every file they change."""

Edits = dict[str, tuple[str | None, str | None]]
"""Per path the content before the first and after the last edit of a step; None = no file."""


class Checkpoints:
    """Those of one turn. Without a store of snapshots nothing happens."""

    def __init__(self, session: Session, turn: int) -> None:
        self.session, self.turn = session, turn
        self.store: SnapshotStore | None = session.workspace.snapshots
        self.before = session.state.tree
        self.certain = not session.state.unsettled and not self._jobs()
        self.edits: Edits = {}
        self.places: list[str] = []
        self.cost_ms = 0.0
        self.dirty = False
        self._stop_listening: Callable[[], None] | None = None
        self._first: asyncio.Task[Snapshot | SnapshotError] | None = None
        if self.store is not None:
            self._first = asyncio.create_task(self._take(PROMPT_LIMITS), name=f"snapshot {session.id}")
            self._stop_listening = session.listen(self._heard)

    def stop(self) -> None:
        """The turn is over. A snapshot that is still being taken ends by itself, unrecorded."""
        if self._stop_listening is not None:
            self._stop_listening()
        if self._first is not None:
            self._first.cancel()
            self._first = None

    async def noted(self) -> None:
        """Record the state at the prompt's start before the model is first asked, if that takes no time."""
        if self._first is not None and self.before is not None:
            await asyncio.wait({self._first}, timeout=NOTE_WAIT_S)
        if self._first is not None and self._first.done():
            await self._prompted()

    async def ahead(self, generation: Generation, step: int) -> None:
        """Before calls that may change something: the state from which their changes count."""
        if self.store is None:
            return
        await self._prompted()
        self.edits, self.places, self.dirty = {}, [], True
        if self._says_all(generation) or self.cost_ms > QUICK_MS:
            return
        await self._record("user", step, await self._take(STEP_LIMITS), certain=not self._jobs())

    async def after(self, generation: Generation, step: int) -> None:
        """After calls that may have changed something."""
        if self.store is None:
            return
        accounted = self._says_all(generation) and not self._jobs()
        found = await self._take(STEP_LIMITS)
        await self._record("step", step, found, certain=accounted, edits=self.edits if accounted else None)
        self.dirty = False

    async def end(self, *, stopped: bool) -> None:
        """At the turn's end: what a step that was broken off, or a job in the background, has done.

        A turn that was `stopped` does not wait for the state at its prompt, which nothing has changed yet.
        """
        if self.store is None:
            return
        if self._first is not None and (self._first.done() or not stopped):
            await self._prompted()
        if self.dirty or self._jobs():
            found = await self._take(STEP_LIMITS)
            if self.dirty or (isinstance(found, Snapshot) and found.tree != self.session.state.tree):
                await self._record("end", self.session.state.step, found, certain=False)
            self.dirty = False

    # ---- how

    async def _prompted(self) -> None:
        first, self._first = self._first, None
        if first is None or self.store is None:
            return
        found = await first
        await self._record("prompt", 0, found, certain=self.certain)
        workspace = self.session.workspace
        known = isinstance(found, Snapshot)
        workspace.history = History(self.store, workspace.root, found.tree) if known else None

    async def _take(self, limits: Limits) -> Snapshot | SnapshotError:
        assert self.store is not None
        try:
            snapshot = await self.store.take(self.session.workspace.root, limits)
            await self.store.hold(self.session.id, [snapshot.tree])
        except SnapshotError as error:
            log.warning("no snapshot of %s: %s", self.session.workspace.root, error)
            return error
        if snapshot.read < FRESH:
            self.cost_ms = snapshot.cpu_ms
        return snapshot

    async def _record(
        self,
        reason: CheckpointReason,
        step: int,
        found: Snapshot | SnapshotError,
        *,
        certain: bool,
        edits: Edits | None = None,
    ) -> None:
        """One checkpoint, and before it what others changed since the last one."""
        tree = self.session.state.tree
        if isinstance(found, SnapshotError):
            await self._write(Checkpoint(tree=tree, reason=reason, partial=found.message), step)
            return
        if reason == "user" and found.tree == tree:
            return
        count = 0
        if certain and tree is not None and found.tree != tree:
            count = await self._user_edits(tree, found.tree, step, edits or {})
        record = checkpoint(found, reason)
        record.accounted, record.user_edits = edits is not None, count
        await self._write(record, step)

    async def _write(self, record: Checkpoint, step: int) -> None:
        await self.session.record("checkpoint", record, turn=self.turn, step=step)

    async def _user_edits(self, before: str, after: str, step: int, edits: Edits) -> int:
        """Record what changed between two states without being in `edits`; returns how many paths."""
        assert self.store is not None
        try:
            changes = await not_by(self.store, before, after, edits)
            found = [one for one in changes if _is_file(one) and not handled(one, self.places)]
            records = await asyncio.to_thread(_described, self.store, found[:USER_EDITS])
            await self.store.hold(self.session.id, _names(found[:USER_EDITS]))
        except SnapshotError as error:
            log.warning("what changed in %s is not known: %s", self.session.workspace.root, error)
            return 0
        for record in records:
            await self.session.record("user_edit", record, turn=self.turn, step=step)
        return len(found)

    def _heard(self, message: object) -> None:
        if isinstance(message, Event) and message.type == "edit":
            before, after = message.data.get("before"), message.data.get("after")
            path, sides = message.data["path"], [side and side["hash"] for side in (before, after)]
            first = self.edits[path][0] if path in self.edits else sides[0]
            self.edits[path] = first, sides[1]
        elif isinstance(message, Event) and message.type == "tool.result":
            self.places += places_of(message)

    def _says_all(self, generation: Generation) -> bool:
        """Whether all changing calls are of tools that say what they change."""
        tools = (self.session.tools.get(call.name) for call in generation.calls)
        return all(tool is None or tool.read_only or tool.kind in SAYING for tool in tools)

    def _jobs(self) -> bool:
        shell = self.session.workspace.shell
        return shell is not None and any(job.running for job in shell.jobs.values())


def checkpoint(found: Snapshot, reason: CheckpointReason) -> Checkpoint:
    """The record of a snapshot."""
    budget = sum(one.count for one in found.left_out if one.reason == "budget")
    return Checkpoint(
        tree=found.tree,
        reason=reason,
        files=found.files,
        bytes=found.bytes,
        left_out=[
            {"reason": one.reason, "count": one.count, "examples": [printable(name) for name in one.examples]}
            for one in found.left_out
        ],
        took_ms=round(found.took_ms, 1),
        cpu_ms=round(found.cpu_ms, 1),
        git=found.git,
        partial=f"there was no time or room for {budget} paths" if found.partial else None,
    )


async def not_by(
    store: SnapshotStore, before: str, after: str, edits: Mapping[str, tuple[str | None, str | None]]
) -> list[Change]:
    """What differs between two states and is not explained by edits made between them.

    Of an edited path that one of the states does not cover nothing can be said.

    Raises:
        SnapshotError: one of the states cannot be read.
    """
    changes = (await store.diff(before, after)).changes
    seen = {change.path for change in changes}
    paths = {name.encode("utf-8", "surrogateescape"): name for name in edits}
    unseen = paths.keys() - seen
    if unseen:
        unknown = await store.uncovered(before, unseen) | await store.uncovered(after, unseen)
        edits = {
            name: sides for path, name in paths.items() if path not in unknown for sides in [edits[name]]
        }
    return theirs(changes, edits)


def places_of(result: Event) -> list[str]:
    """Paths that a call has deleted or moved, by its `tool.result`: links and special files are no edits."""
    data = result.data.get("data") or {}
    moved, deleted = data.get("moved"), data.get("deleted")
    places = [place for pair in moved.items() for place in pair] if isinstance(moved, dict) else []
    return [*places, deleted] if isinstance(deleted, str) else places


def handled(change: Change, places: Iterable[str]) -> bool:
    """Whether a change of something that is no regular file lies where the agent has deleted or moved."""
    if any(side is not None and side.type == "file" for side in (change.before, change.after)):
        return False
    path = change.path.decode("utf-8", "surrogateescape")
    return any(f"{path}/".startswith(f"{place}/") for place in places)


def theirs(changes: Iterable[Change], edits: Mapping[str, tuple[str | None, str | None]]) -> list[Change]:
    """The changes that edits do not explain; of a file that was edited, what differs from the edit."""
    found: list[Change] = []
    left = dict(edits)
    for change in changes:
        name = change.path.decode("utf-8", "surrogateescape")
        if name not in left:
            found.append(change)
            continue
        _, after = left.pop(name)
        if (change.after.name if change.after else None) != after:
            found.append(Change(change.path, _side(change, after), change.after))
    for name, (before, after) in left.items():
        if before != after:  # somebody has put it back as it was
            path = name.encode("utf-8", "surrogateescape")
            found.append(Change(path, _named(path, after), _named(path, before)))
    return found


def _side(change: Change, name: str | None) -> Entry | None:
    return _named(change.path, name, change.after or change.before)


def _named(path: bytes, name: str | None, like: Entry | None = None) -> Entry | None:
    return None if name is None else Entry(path, "file", like.mode if like else 0o644, 0, name)


def _is_file(change: Change) -> bool:
    return all(side is None or side.type in ("file", "link") for side in (change.before, change.after))


def _names(changes: Iterable[Change]) -> list[str]:
    return [side.name for change in changes for side in (change.before, change.after) if side is not None]


def _described(store: SnapshotStore, changes: Iterable[Change]) -> list[UserEdit]:
    return [_user_edit(store, change) for change in changes]


def _user_edit(store: SnapshotStore, change: Change) -> UserEdit:
    path = printable(change.path.decode("utf-8", "surrogateescape"))
    sides = [side and store.objects.read(side.name) for side in (change.before, change.after)]
    text, added, removed = "", 0, 0
    if max(len(side or b"") for side in sides) <= min(DIFF_BYTES, MAX_FILE_BYTES):
        text, added, removed = unified_diff(sides[0], sides[1], path)
    before, after = (
        entry and BlobRef(hash=entry.name, size=len(side or b""))
        for entry, side in zip((change.before, change.after), sides, strict=True)
    )
    return UserEdit(
        path=path,
        before=before,
        after=after,
        mode=change.after.mode if change.after else None,
        diff=text[:DIFF_CHARACTERS],
        added=added,
        removed=removed,
    )
