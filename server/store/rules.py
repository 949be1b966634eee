"""The rules that hold: what a person allowed for good in a workspace, read from their sessions' logs."""

import hashlib
from dataclasses import dataclass

from sqlalchemy import Connection, select

from server.store.tables import rules, sessions


@dataclass(frozen=True, slots=True)
class RuleRow:
    """A rule of a person in a workspace. `made`: when it was last made, microseconds UTC. `sessions`: those
    whose logs hold it; it holds for as long as one of them does."""

    id: str
    user_id: str
    workspace: str
    rule: str
    made: int
    sessions: tuple[str, ...]


def rule_id(user_id: str, workspace: str, rule: str) -> str:
    """The same for the same rule, wherever and whenever it is made."""
    text = "\0".join((user_id, workspace, rule))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def rule_rows(connection: Connection, user_id: str | None, workspace: str | None) -> list[RuleRow]:
    """The rules that hold, by workspace and text."""
    query = (
        select(sessions.c.user_id, sessions.c.workspace, rules.c.rule, rules.c.ts, rules.c.session_id)
        .join(sessions, sessions.c.id == rules.c.session_id)
        .order_by(sessions.c.user_id, sessions.c.workspace, rules.c.rule, rules.c.session_id)
    )
    if user_id is not None:
        query = query.where(sessions.c.user_id == user_id)
    if workspace is not None:
        query = query.where(sessions.c.workspace == workspace)
    found: dict[tuple[str, str, str], list[tuple[int, str]]] = {}
    for user, path, rule, ts, session in connection.execute(query):
        found.setdefault((user, path, rule), []).append((ts, session))
    return [
        RuleRow(
            id=rule_id(*key),
            user_id=key[0],
            workspace=key[1],
            rule=key[2],
            made=max(ts for ts, _ in held),
            sessions=tuple(session for _, session in held),
        )
        for key, held in found.items()
    ]


def descendants(connection: Connection, ids: tuple[str, ...]) -> tuple[str, ...]:
    """These sessions and all forks of them: each log that holds, or would inherit, what theirs hold."""
    found, waiting = list(ids), list(ids)
    while waiting:
        query = select(sessions.c.id).where(sessions.c.parent_id == waiting.pop())
        children = [id for id in connection.execute(query).scalars() if id not in found]
        found += children
        waiting += children
    return tuple(found)
