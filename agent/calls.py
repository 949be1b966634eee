"""The tool calls of one step: checked, judged, approved, run, recorded — each call gets one result."""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal, TypeVar

import orjson
from ulid import ULID

from agent.approval import OPTIONS, Decision, judge, rule_of
from agent.events import (
    ApprovalRequested,
    ApprovalResolved,
    BlobRef,
    Call,
    Draft,
    Edit,
    ErrorData,
    Generation,
    ToolCall,
    ToolResultData,
    draft,
    now,
)
from agent.instructions import nested
from agent.session import Session
from agent.streaming import Stream
from tools.diff import unified_diff
from tools.errors import EnvironmentFault, InvalidArguments, ToolError
from tools.registry import TOOLS
from tools.result import FileChange, Proposal, ToolResult
from tools.shell_session import ShellSession
from tools.text import visible
from tools.tool import Arguments, Tool
from tools.workspace import content_hash

log = logging.getLogger(__name__)

PARALLEL = 8
"""Reading calls that run at the same time."""
LIVE_OUTPUT = 262_144
"""Characters of one call's live output that are stored; the whole output is a blob of its result."""
TEXT_LIMIT = 200_000
"""Characters of one result that reach the model, whatever a tool returns."""
DIFF_TEXT_LIMIT = 400_000
"""Bytes of a file's text that an approval request shows."""
CALLS_PER_STEP = 64

T = TypeVar("T")
Parse = Literal["ok", "malformed", "unknown_tool", "invalid"]
Synthetic = Literal["denied", "interrupted", "repeated", "cancelled", "refused"]


@dataclass(slots=True)
class Prepared:
    """A call after the checks that need no approval. `refusal` is set where it cannot run at all."""

    call: Call
    tool: Tool | None = None
    arguments: Arguments | None = None
    proposal: Proposal = field(default_factory=lambda: Proposal(title=""))
    parse: Parse = "ok"
    refusal: ToolError | None = None


@dataclass(slots=True)
class Step:
    """What the calls of one step share."""

    session: Session
    generation: Generation
    turn: int
    step: int
    group: int = 0
    instructed: set[str] = field(default_factory=set)


async def run_calls(
    session: Session, generation: Generation, turn: int, step: int, refuse: str | None = None
) -> list[str]:
    """Run the calls of a generation; reading calls side by side, changing ones alone and in order.

    `refuse` answers every call with this message instead (a call repeated without end).
    Returns, per call, `ok`, `failed`, or the parse status of a call that was not valid.
    """
    here = Step(session, generation, turn, step, instructed=set(session.state.instructions))
    outcomes: list[str] = []
    for reading, group in groupby(generation.calls, key=_reads_only):
        calls = list(group)
        for batch in [calls] if reading else [[call] for call in calls]:
            here.group += 1
            outcomes += await _run_batch(here, batch, refuse)
    return outcomes


async def _run_batch(here: Step, calls: list[Call], refuse: str | None) -> list[str]:
    """Check the calls side by side, announce them in the model's order, run them side by side."""
    started, limit = now(), asyncio.Semaphore(PARALLEL)
    batch = await _side_by_side(_prepare(here, call) for call in calls)
    for prepared in batch:
        await _announce(here, prepared)

    async def one(prepared: Prepared) -> str:
        async with limit:
            return await _run(here, prepared, refuse, started)

    return await _side_by_side(map(one, batch))


async def _side_by_side(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All results, in order. Where one fails or all are cancelled, every one has ended before this does:
    what acted on after its turn would be in no turn of the log."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        if left := [task for task in tasks if not task.done()]:
            for task in left:
                if not task.cancelling():  # a second one would break off what the first lets it finish
                    task.cancel()
            await asyncio.wait(left)


async def close_calls(session: Session, how: Synthetic, text: str) -> None:
    """Give every call that has no result a synthetic one, so that calls and results always pair."""
    at = now()
    for call_id, name in list(session.state.pending_calls.items()):
        result = ToolResultData(
            call_id=call_id, name=name, text=text, error="aborted", started=at, ended=at, synthetic=how
        )
        await session.record("tool.result", result)
    for request_id, call_id in list(session.state.asked.items()):
        resolved = ApprovalResolved(request_id=request_id, call_id=call_id, outcome="cancelled", by="loop")
        await session.record("approval.resolved", resolved)


def may_change(generation: Generation) -> bool:
    """Whether any call of a generation may change the workspace."""
    return not all(_reads_only(call) for call in generation.calls)


def _reads_only(call: Call) -> bool:
    tool = TOOLS.get(call.name)
    return tool is not None and tool.read_only


async def _run(here: Step, prepared: Prepared, refuse: str | None, started: int) -> str:
    if refuse is not None:
        await _finish(here, prepared, ToolResult(refuse, error="invalid_arguments"), started, "repeated")
        return prepared.parse if prepared.parse != "ok" else "failed"
    if prepared.refusal is not None:
        await _fail(here, prepared, prepared.refusal, started)
        return prepared.parse if prepared.parse != "ok" else "failed"
    denied = await _denied(here, prepared)
    if denied is not None:
        await _finish(here, prepared, ToolResult(denied, error="aborted"), started, "denied")
        return "failed"
    result = await _execute(here, prepared)
    await _finish(here, prepared, result, started, None)
    return "failed" if result.error else "ok"


async def _prepare(here: Step, call: Call) -> Prepared:
    tool = TOOLS.get(call.name)
    if tool is None:
        known = ", ".join(TOOLS)
        error = InvalidArguments(f"There is no tool named {call.name[:80]!r}. The tools are: {known}.")
        return Prepared(call, parse="unknown_tool", refusal=error)
    position = [other.id for other in here.generation.calls].index(call.id)
    if position >= CALLS_PER_STEP:
        error = InvalidArguments(f"A step may hold {CALLS_PER_STEP} calls; this one was not run. Repeat it.")
        return Prepared(call, tool, parse="invalid", refusal=error)
    try:
        arguments = tool.parse(call.arguments)
    except InvalidArguments as error:
        if here.generation.finish == "length":
            error = InvalidArguments(
                f"{error.message} The answer was cut off at the output limit: make smaller calls."
            )
        parse: Parse = "malformed" if _is_malformed(call.arguments) else "invalid"
        return Prepared(call, tool, parse=parse, refusal=error)
    prepared = Prepared(call, tool, arguments)
    workspace, path = here.session.workspace, getattr(arguments, "path", None)
    try:
        if workspace.refresh is not None and isinstance(path, str):
            await workspace.refresh(path)
        prepared.proposal = await tool.propose(arguments, workspace)
    except ToolError as error:
        prepared.refusal = error
    except Exception as error:  # noqa: BLE001 - a defect of a tool must not end the session
        prepared.refusal = _defect(prepared, error)
    return prepared


async def _announce(here: Step, prepared: Prepared) -> None:
    call, tool, proposal = prepared.call, prepared.tool, prepared.proposal
    record = ToolCall(
        call_id=call.id,
        generation=here.generation.id,
        name=call.name,
        kind=tool.kind if tool else "other",
        read_only=bool(tool and tool.read_only),
        arguments=prepared.arguments.model_dump(exclude_none=True) if prepared.arguments else None,
        raw="" if prepared.arguments else call.arguments[:4096],
        parse=prepared.parse,
        group=here.group,
        title=proposal.title or _title(prepared),
        paths=list(proposal.paths),
        line=proposal.line,
    )
    await here.session.record("tool.call", record, turn=here.turn, step=here.step)
    if prepared.parse != "ok" and prepared.refusal is not None:
        error = ErrorData(
            where="model", error="malformed_call", message=prepared.refusal.message[:2000], call_id=call.id
        )
        await here.session.record("error", error, turn=here.turn, step=here.step)


def _title(prepared: Prepared) -> str:
    """The title of a call that could not be proposed: with what it was about, where that is known."""
    arguments, tool = prepared.arguments, prepared.tool
    subject = getattr(arguments, "path", None) or getattr(arguments, "pattern", None)
    if tool is None or not isinstance(subject, str):
        return prepared.call.name
    return f"{tool.kind.capitalize()} {visible(subject, 60)}"


async def _denied(here: Step, prepared: Prepared) -> str | None:
    """What to tell the model where the call may not run; None where it may."""
    session, tool, proposal = here.session, prepared.tool, prepared.proposal
    assert tool is not None
    mode, rules = session.state.mode, session.state.rules
    confined = mode != "auto" or await _confined(session)
    match judge(tool, proposal, mode, rules, confined):
        case "allow":
            return None
        case "deny":
            return f"Refused: in mode {mode!r} nothing may be changed. Describe the change instead."
        case "ask":
            decision = await _ask(here, prepared)
    if decision.outcome == "allowed":
        return None
    why = f": {decision.reason}" if decision.reason else ""
    return f"The user did not allow this call{why}. Do not repeat it; do something else or ask."


async def _confined(session: Session) -> bool:
    try:
        return (await ShellSession.of(session.workspace).sandbox()).confined
    except EnvironmentFault:
        return False


async def _ask(here: Step, prepared: Prepared) -> Decision:
    session, call, proposal, tool = here.session, prepared.call, prepared.proposal, prepared.tool
    assert tool is not None
    request = ApprovalRequested(
        request_id=str(ULID()),
        call_id=call.id,
        title=proposal.title,
        kind=tool.kind,
        options=OPTIONS,
        diffs=[shown for change in proposal.changes if (shown := _texts(change))],
        command=proposal.command,
    )
    await session.record("approval.requested", request, turn=here.turn, step=here.step)
    decision = await session.ask(request)
    always = decision.outcome == "allowed" and decision.option == "allow_always"
    resolved = ApprovalResolved(
        request_id=request.request_id,
        call_id=call.id,
        outcome=decision.outcome,
        option=decision.option,
        by=decision.by,
        rule=rule_of(tool, proposal) if always else None,
        reason=decision.reason,
    )
    await session.record("approval.resolved", resolved, turn=here.turn, step=here.step)
    return decision


async def _execute(here: Step, prepared: Prepared) -> ToolResult:
    tool, session = prepared.tool, here.session
    assert tool is not None
    output = Stream(session, "tool.output", prepared.call.id, here.turn, here.step, limit=LIVE_OUTPUT)
    try:
        return await tool.run(prepared.arguments, session.workspace, output.push)
    except ToolError as error:
        return _failed(error)
    except Exception as error:  # noqa: BLE001 - a defect of a tool must not end the session
        defect = _defect(prepared, error)
        return ToolResult(defect.message, error="unknown")
    finally:
        output.flush()


async def _fail(here: Step, prepared: Prepared, error: ToolError, started: int) -> None:
    await _finish(here, prepared, _failed(error), started, None)


def _failed(error: ToolError) -> ToolResult:
    """A refusal that shows the model a file (a stale edit) counts as having seen it."""
    data = dict(error.data)
    seen = data.pop("seen", {})
    return ToolResult(error.message, seen=seen, data=data, error=error.error_class)


async def _finish(
    here: Step, prepared: Prepared, result: ToolResult, started: int, synthetic: Synthetic | None
) -> None:
    session, blobs = here.session, {}
    for change in result.changes:
        session.submit(_edit(here, prepared.call.id, change))
    text, data = result.text, dict(result.data)
    found = nested(session.workspace, prepared.proposal.paths, here.instructed) if not result.error else {}
    if found:
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


def _edit(here: Step, call_id: str, change: FileChange) -> Draft:
    blobs: dict[str, bytes] = {}

    def reference(data: bytes | None) -> BlobRef | None:
        if data is None:
            return None
        name = content_hash(data)
        blobs[name] = data
        return BlobRef(hash=name, size=len(data))

    text, added, removed = unified_diff(change.before, change.after, change.path)
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
    return draft("edit", record, turn=here.turn, step=here.step, blobs=blobs)


def _texts(change: FileChange) -> dict[str, str | None] | None:
    if max(len(change.before or b""), len(change.after or b"")) > DIFF_TEXT_LIMIT:
        return None
    before = None if change.before is None else change.before.decode("utf-8", "replace")
    return {"path": change.path, "old": before, "new": (change.after or b"").decode("utf-8", "replace")}


def _is_malformed(raw: str) -> bool:
    try:
        return not isinstance(orjson.loads(raw or "{}"), dict)
    except orjson.JSONDecodeError:
        return True


def _defect(prepared: Prepared, error: Exception) -> ToolError:
    log.exception("tool %s failed unexpectedly", prepared.call.name, exc_info=error)
    defect = ToolError(
        f"{prepared.call.name} failed because of a defect in Etude ({type(error).__name__}). "
        "It was logged. Try another way."
    )
    defect.error_class = "unknown"
    return defect
