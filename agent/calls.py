"""The tool calls of one step: checked, judged, approved, run, recorded — each call gets one result."""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from itertools import groupby
from typing import Any, TypeVar

import orjson

from agent.events import (
    ApprovalResolved,
    Call,
    ErrorData,
    Generation,
    Parse,
    Synthetic,
    ToolCall,
    ToolResultData,
    now,
)
from agent.outcomes import fail, failed, finish
from agent.permission import denied
from agent.prepared import Prepared, Step
from agent.session import Session
from agent.streaming import Stream
from tools.errors import InvalidArguments, ToolError
from tools.result import ToolResult
from tools.syntax import with_syntax
from tools.text import visible

log = logging.getLogger(__name__)

PARALLEL = 8
"""Reading calls that run at the same time."""
LIVE_OUTPUT = 262_144
"""Characters of one call's live output that are stored; the whole output is a blob of its result."""
CALLS_PER_STEP = 64

T = TypeVar("T")


async def run_calls(
    session: Session, generation: Generation, turn: int, step: int, refuse: str | None = None
) -> list[str]:
    """Run the calls of a generation; reading calls side by side, changing ones alone and in order.

    `refuse` answers every call with this message instead (a call repeated without end).
    Returns, per call, `ok`, `failed`, or the parse status of a call that was not valid.
    """
    here = Step(session, generation, turn, step, instructed=set(session.state.instructions))
    outcomes: list[str] = []
    for reading, group in groupby(generation.calls, key=lambda call: _reads_only(session, call)):
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


def may_change(session: Session, generation: Generation) -> bool:
    """Whether any call of a generation may change the workspace."""
    return not all(_reads_only(session, call) for call in generation.calls)


def _reads_only(session: Session, call: Call) -> bool:
    tool = session.tools.get(call.name)
    return tool is not None and tool.read_only


async def _run(here: Step, prepared: Prepared, refuse: str | None, started: int) -> str:
    if refuse is not None:
        await finish(here, prepared, ToolResult(refuse, error="invalid_arguments"), started, "repeated")
        return prepared.parse if prepared.parse != "ok" else "failed"
    if prepared.refusal is not None:
        await fail(here, prepared, prepared.refusal, started)
        return prepared.parse if prepared.parse != "ok" else "failed"
    refusal = await denied(here, prepared)
    if refusal is not None:
        await finish(here, prepared, ToolResult(refusal, error="aborted"), started, "denied")
        return "failed"
    result = await _execute(here, prepared)
    await finish(here, prepared, result, started, None)
    return "failed" if result.error else "ok"


async def _prepare(here: Step, call: Call) -> Prepared:
    tool = here.session.tools.get(call.name)
    if tool is None:
        known = ", ".join(here.session.tools)
        error = InvalidArguments(f"There is no tool named {call.name[:80]!r}. The tools are: {known}.")
        return Prepared(call, parse="unknown_tool", refusal=error)
    position = [other.id for other in here.generation.calls].index(call.id)
    if position >= CALLS_PER_STEP:
        error = InvalidArguments(f"A step may hold {CALLS_PER_STEP} calls; this one was not run. Repeat it.")
        return Prepared(call, tool, parse="invalid", refusal=error)
    try:
        raw = await here.session.redaction.arguments(tool, call.arguments)
        arguments = tool.parse(raw)
        shown = arguments if raw == call.arguments else tool.parse(call.arguments)
    except InvalidArguments as error:
        if here.generation.finish == "length":
            error = InvalidArguments(
                f"{error.message} The answer was cut off at the output limit: make smaller calls."
            )
        parse: Parse = "malformed" if _is_malformed(call.arguments) else "invalid"
        return Prepared(call, tool, parse=parse, refusal=error)
    prepared = Prepared(call, tool, arguments, shown)
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
        arguments=prepared.shown.model_dump(exclude_none=True) if prepared.shown else None,
        raw="" if prepared.shown else call.arguments[:4096],
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


async def _execute(here: Step, prepared: Prepared) -> ToolResult:
    tool, session = prepared.tool, here.session
    assert tool is not None
    output = Stream(session, "tool.output", prepared.call.id, here.turn, here.step, limit=LIVE_OUTPUT)
    try:
        result = await tool.run(prepared.arguments, session.workspace, output.push)
        return await with_syntax(result, session.workspace)
    except ToolError as error:
        return failed(error)
    except Exception as error:  # noqa: BLE001 - a defect of a tool must not end the session
        defect = _defect(prepared, error)
        return ToolResult(defect.message, error="unknown")
    finally:
        output.close()


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
