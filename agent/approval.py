"""Who decides whether a call may run: the mode, the rules the user made, or the user."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from agent.events import ApprovalRequested, Mode
from tools.result import Proposal
from tools.tool import Tool

OPTIONS = [
    {"optionId": "allow", "name": "Allow once", "kind": "allow_once"},
    {"optionId": "allow_always", "name": "Always allow in this session", "kind": "allow_always"},
    {"optionId": "deny", "name": "Deny", "kind": "reject_once"},
]


@dataclass(frozen=True, slots=True)
class Decision:
    """An answer to an approval request. `by` names who answered."""

    outcome: Literal["allowed", "denied", "cancelled"]
    option: str | None = None
    by: str | None = None
    reason: str | None = None


Ask = Callable[[ApprovalRequested], Awaitable[Decision]]


async def deny_headless(request: ApprovalRequested) -> Decision:
    """The answer where nobody can be asked."""
    return Decision("denied", by="headless", reason="nobody is here to approve it")


def rule_of(tool: Tool, proposal: Proposal) -> str:
    """What an `always` answer allows from now on: all edits, or this very command."""
    return f"{tool.name}:{proposal.command}" if proposal.command is not None else tool.name


def judge(
    tool: Tool, proposal: Proposal, mode: Mode, rules: set[str], confined: bool
) -> Literal["allow", "ask", "deny"]:
    """Whether a call runs at once, needs an answer, or is refused.

    `confined` says whether commands run in a sandbox that holds them to the workspace.
    """
    if tool.read_only:
        return "allow"
    if mode == "plan":
        return "deny"
    if mode == "full" or rule_of(tool, proposal) in rules:
        return "allow"
    if mode == "auto" and (tool.kind != "execute" or confined):
        return "allow"
    return "ask"
