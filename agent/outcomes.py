"""What a call did, in the log: its edits, then its one result."""

import asyncio
import logging
from collections.abc import Sequence

from agent.events import BlobRef, Draft, Edit, Synthetic, Todo, ToolResultData, draft, now
from agent.instructions import nested
from agent.prepared import Prepared, Step
from tools.diff import unified_diff
from tools.errors import ToolError
from tools.result import FileChange, ToolResult
from tools.snapshots import SnapshotError
from tools.workspace import content_hash

log = logging.getLogger(__name__)

TEXT_LIMIT = 200_000
"""Characters of one result that reach the model, whatever a tool returns."""
DIFF_LIMIT = 500_000
"""Characters of an edit's diff that are logged; both sides of it are kept whole in the snapshot store."""

FILES, OUTSIDE = "files", "outside"
"""What held a call that ran in no sandbox: the confinement of the file tools, or nothing of ours."""


async def fail(here: Step, prepared: Prepared, error: ToolError, started: int) -> None:
    await finish(here, prepared, failed(error), started, None)


def failed(error: ToolError) -> ToolResult:
    """A refusal that shows the model a file (a stale edit) counts as having seen it."""
    data = dict(error.data)
    seen = data.pop("seen", {})
    return ToolResult(error.message, seen=seen, data=data, error=error.error_class)


async def _instructions(here: Step, prepared: Prepared) -> dict[str, str]:
    """Instruction files beside the files of a call that the model has not seen: path → text."""
    known, paths = set(here.instructed), prepared.proposal.paths
    found = await asyncio.to_thread(nested, here.session.workspace, paths, known)
    return {name: text for name, text in found.items() if name not in here.instructed}


async def finish(
    here: Step, prepared: Prepared, result: ToolResult, started: int, synthetic: Synthetic | None
) -> None:
    session, blobs = here.session, {}
    edits, cancelled = await _edits(here, prepared.call.id, result.changes)
    for edit in edits:
        session.submit(edit, clean=True)
    text, data = await session.redaction.text(result.text), dict(result.data)
    if synthetic is None and prepared.tool is not None:
        data.setdefault("tier", OUTSIDE if prepared.tool.outside else FILES)
    if (todos := data.pop("todos", None)) is not None:
        todo = Todo(call_id=prepared.call.id, items=todos)
        session.submit(draft("todo", todo, turn=here.turn, step=here.step))
    if not result.error and (found := await _instructions(here, prepared)):
        here.instructed.update(found)
        data["instructions"] = sorted(found)
        text += "".join(f"\n\n[{name} applies here]\n{content}" for name, content in found.items())
    if len(text) > TEXT_LIMIT:
        text = f"{text[:TEXT_LIMIT]}\n[{len(text) - TEXT_LIMIT} more characters left out]"
    output = None
    if result.full is not None:
        output = BlobRef(hash=content_hash(result.full), size=len(result.full))
        blobs[output.hash] = result.full
    record = ToolResultData(
        call_id=prepared.call.id,
        name=prepared.call.name,
        text=text.encode("utf-8", "replace").decode("utf-8"),
        error=result.error,
        output=output,
        seen=result.seen,
        data=data,
        started=started,
        ended=now(),
        synthetic=synthetic,
    )
    await session.record("tool.result", record, turn=here.turn, step=here.step, blobs=blobs)
    if cancelled:
        raise asyncio.CancelledError


async def _edits(here: Step, call_id: str, changes: Sequence[FileChange]) -> tuple[list[Draft], bool]:
    """The events of changes, whose both sides go into the snapshot store; and whether the turn was cancelled
    meanwhile.

    What is done is logged: neither a cancelled turn nor a store that is full keeps the edits from it.
    """
    if not changes:
        return [], False
    store = here.session.workspace.snapshots
    sides = [side for change in changes for side in (change.before, change.after) if side is not None]

    async def made() -> list[Draft]:
        if store is not None and sides:
            try:
                await store.hold(here.session.id, await store.put_all(sides))
            except SnapshotError as error:
                log.error("the contents of an edit are not kept, so it cannot be taken back: %s", error)
        # The diff of a large file takes a good part of a second, which other sessions need not wait for.
        clean = here.session.redaction.draft
        return await asyncio.to_thread(lambda: [clean(_edit(here, call_id, change)) for change in changes])

    making, cancelled = asyncio.ensure_future(made()), False
    while not making.done():
        try:
            await asyncio.wait({making})
        except asyncio.CancelledError:
            cancelled = True
    return making.result(), cancelled


def _edit(here: Step, call_id: str, change: FileChange) -> Draft:
    def reference(data: bytes | None) -> BlobRef | None:
        return None if data is None else BlobRef(hash=content_hash(data), size=len(data))

    text, added, removed = unified_diff(change.before, change.after, change.path)
    if len(text) > DIFF_LIMIT:  # at the end of a line, so that secrets in it are whole
        shown = text[: text.rfind("\n", 0, DIFF_LIMIT) + 1]
        text = f"{shown}\\ {len(text) - len(shown)} more characters left out\n"
    record = Edit(
        call_id=call_id,
        path=change.path,
        before=reference(change.before),
        after=reference(change.after),
        mode=change.mode,
        diff=text,
        added=added,
        removed=removed,
    )
    return draft("edit", record, turn=here.turn, step=here.step)
