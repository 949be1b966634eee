"""Gets a prepared call its permission: from the mode, from a rule, or from the user."""

from ulid import ULID

from agent.approval import Circumstances, Decision, Ruling, judge
from agent.asking import approval
from agent.events import ApprovalRequested
from agent.prepared import Prepared, Step
from agent.session import Session
from tools.errors import EnvironmentFault
from tools.result import FileChange, Proposal
from tools.shell_session import ShellSession
from tools.tool import Tool

DIFF_TEXT_LIMIT = 400_000
"""Bytes of a file's text that an approval request shows."""


async def denied(here: Step, prepared: Prepared) -> str | None:
    """What to tell the model where the call may not run; None where it may."""
    session, tool, proposal = here.session, prepared.tool, prepared.proposal
    assert tool is not None
    ruling = await judge(tool, proposal, await _circumstances(session, tool, proposal))
    match ruling.verdict:
        case "allow":
            pass
        case "deny" if session.state.mode == "plan":
            why = f" ({ruling.reason})" if ruling.parts and ruling.reason else ""
            return f"Refused: in mode 'plan' nothing may be changed{why}. Describe the change instead."
        case "deny":
            return f"Refused: {ruling.reason}. Do not repeat it; do something else or ask."
        case "ask":
            decision = await _ask(here, prepared, ruling)
            if decision.outcome != "allowed":
                why = f": {decision.reason}" if decision.reason else ""
                return f"The user did not allow this call{why}. Do not repeat it; do something else or ask."
    session.grants.defined |= ruling.defines
    return None


async def _circumstances(session: Session, tool: Tool, proposal: Proposal) -> Circumstances:
    workspace, mode = session.workspace, session.state.mode
    command = proposal.command is not None or tool.kind == "execute"
    cwd = None
    if command and not tool.read_only:
        shell = ShellSession.of(workspace)
        cwd = str(workspace.root / proposal.paths[0]) if proposal.paths else shell.cwd
    return Circumstances(
        root=workspace.root,
        mode=mode,
        rules=frozenset(session.rules),
        grants=session.grants,
        confined=not command or mode == "full" or tool.read_only or await _confined(session),
        network=bool(workspace.policy.network),
        cwd=cwd,
    )


async def _confined(session: Session) -> bool:
    try:
        return (await ShellSession.of(session.workspace).sandbox()).confined
    except EnvironmentFault:
        return False


async def _ask(here: Step, prepared: Prepared, ruling: Ruling) -> Decision:
    session, call, proposal, tool = here.session, prepared.call, prepared.proposal, prepared.tool
    assert tool is not None
    request = ApprovalRequested(
        request_id=str(ULID()),
        call_id=call.id,
        title=proposal.title,
        kind=tool.kind,
        options=ruling.options(),
        diffs=[shown for change in proposal.changes if (shown := _texts(change))],
        command=proposal.command,
        reason=ruling.reason,
        parts=list(ruling.parts),
        rules=list(ruling.rules),
    )
    return await approval(session, request, ruling.rules, here.turn, here.step)


def _texts(change: FileChange) -> dict[str, str | None] | None:
    if max(len(change.before or b""), len(change.after or b"")) > DIFF_TEXT_LIMIT:
        return None
    before = None if change.before is None else change.before.decode("utf-8", "replace")
    return {"path": change.path, "old": before, "new": (change.after or b"").decode("utf-8", "replace")}
