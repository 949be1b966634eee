"""Gets a prepared call its permission: from the mode, from a rule, or from the user."""

from ulid import ULID

from agent.approval import OPTIONS, Decision, judge, rule_of
from agent.events import ApprovalRequested, ApprovalResolved
from agent.prepared import Prepared, Step
from agent.session import Session
from tools.errors import EnvironmentFault
from tools.result import FileChange
from tools.shell_session import ShellSession

DIFF_TEXT_LIMIT = 400_000
"""Bytes of a file's text that an approval request shows."""


async def denied(here: Step, prepared: Prepared) -> str | None:
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


def _texts(change: FileChange) -> dict[str, str | None] | None:
    if max(len(change.before or b""), len(change.after or b"")) > DIFF_TEXT_LIMIT:
        return None
    before = None if change.before is None else change.before.decode("utf-8", "replace")
    return {"path": change.path, "old": before, "new": (change.after or b"").decode("utf-8", "replace")}
