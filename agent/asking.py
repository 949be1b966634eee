"""Puts an approval request to people, with the question and its answer in the log."""

from collections.abc import Sequence

from agent.approval import Decision
from agent.events import ApprovalRequested, ApprovalResolved
from agent.session import Session


async def approval(
    session: Session, request: ApprovalRequested, rules: Sequence[str], turn: int, step: int
) -> Decision:
    """The answer. An "always" makes the rules, in the log and for every open session of this person here.

    Raises:
        LogError: the question or its answer could not be stored.
    """
    await session.record("approval.requested", request, turn=turn, step=step)
    decision = await session.ask(request)
    always = decision.outcome == "allowed" and decision.option == "allow_always"
    resolved = ApprovalResolved(
        request_id=request.request_id,
        call_id=request.call_id,
        outcome=decision.outcome,
        option=decision.option,
        by=decision.by,
        rules=list(rules) if always else [],
        reason=decision.reason,
    )
    event = await session.record("approval.resolved", resolved, turn=turn, step=step)
    if always and session.grants.rules is not None:
        session.grants.rules.update(event.data["rules"])
    return decision
