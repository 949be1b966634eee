"""The MCP servers of a session, before a turn: the workspace's own are asked about, all are waited for."""

import hashlib

import orjson
from ulid import ULID

from agent.asking import approval
from agent.events import ApprovalRequested, ErrorData
from agent.rule import SERVER
from agent.session import Session
from tools.mcp import McpSpec

WAIT_S = 15.0
"""How long a turn waits for servers that are still starting."""
_OPTIONS = [
    {"optionId": "allow", "name": "Start it in this session", "kind": "allow_once"},
    {"optionId": "allow_always", "name": "Always start it in this workspace", "kind": "allow_always"},
    {"optionId": "deny", "name": "Do not start it", "kind": "reject_once"},
]


async def connect(session: Session, turn: int) -> None:
    """Take the tools of the servers that are there by then, and log what is wrong with the others."""
    servers = session.mcp
    if servers is None:
        return
    servers.begin()  # those that need no answer start while others are asked about
    for spec in servers.undecided():
        servers.decide(spec, await _allowed(session, spec, turn))
    session.extra, problems = await servers.tools(WAIT_S)
    for problem in problems:
        error = ErrorData(where="tool", error="environment", message=problem)
        await session.record("error", error, turn=turn, step=0)


async def _allowed(session: Session, spec: McpSpec, turn: int) -> bool:
    """Whether a server that the workspace's configuration names may start. A rule covers exactly what it was
    made for: another command, argument or variable asks again."""
    rule = rule_of(spec)
    if rule in session.rules:
        return True
    request = ApprovalRequested(
        request_id=str(ULID()),
        call_id=str(ULID()),
        title=f"Start the MCP server {spec.name!r} that this workspace's etude.toml names",
        kind="other",
        options=_OPTIONS,
        command=spec.shown,
        reason="it runs outside the sandbox, with your account's rights",
    )
    return (await approval(session, request, [rule], turn, 0)).outcome == "allowed"


def rule_of(spec: McpSpec) -> str:
    """What an "always" on this very server is kept as."""
    exact = [spec.name, spec.command, spec.args, dict(spec.env), spec.url, dict(spec.headers)]
    digest = hashlib.sha256(orjson.dumps(exact, option=orjson.OPT_SORT_KEYS)).hexdigest()
    return f"{SERVER}{spec.prefix}:{digest[:16]}"
