"""From events to the rows that lists and queries read: pure functions, and their storing.

The same code runs when an event is recorded and when everything is rebuilt from the log, so both agree.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, Table, and_, delete, insert, or_

from agent.events import Event
from agent.payload import encode
from server.store.backend import Backend
from server.store.tables import approvals, feedback, generations, rules, sessions, snapshots

PROJECTED: Final = frozenset(
    {
        *("session.created", "prompt", "turn.started", "turn.ended", "config.changed", "generation"),
        *("approval.requested", "approval.resolved", "feedback", "checkpoint"),
    }
)
"""Types that change a projection beyond a session's `last_seq` and `updated`."""

LEASE: Final = frozenset({"term", "owner_host", "owner_pid", "owner_started", "owner_nonce", "lease_until"})
"""Columns of a session that are state of running processes."""

OPENING_CHARACTERS: Final = 200

Row = dict[str, Any]


@dataclass(slots=True)
class Rows:
    """New rows of the projections, in the order of their events."""

    generations: list[Row] = field(default_factory=list)
    requested: list[Row] = field(default_factory=list)
    resolved: list[Row] = field(default_factory=list)
    feedback: list[Row] = field(default_factory=list)
    snapshots: list[Row] = field(default_factory=list)
    rules: dict[tuple[str, str], Row | None] = field(default_factory=dict)
    """Rules by session and text, as the last event about each left them; None: revoked."""


def blank_session(session_id: str) -> Row:
    """The row of a session before its first event, without the columns of its lease."""
    row: Row = {column.name: None for column in sessions.columns if column.name not in LEASE}
    return row | {
        "id": session_id,
        "last_seq": 0,
        "turn": 0,
        "turn_open": False,
        "generations": 0,
        "cost": 0.0,
    }


def fold(row: Row, event: Event) -> None:
    """Apply one event to the row of its session."""
    row["last_seq"] = event.seq
    row["updated"] = max(row["updated"] or 0, event.ts)
    data = event.data
    match event.type:
        case "session.created":
            for name in ("user_id", "workspace", "model", "mode", "profile", "title"):
                row[name] = text(data.get(name))
            row["created"] = event.ts
        case "prompt":
            if row["opening"] is None:
                row["opening"] = (text(data.get("text")) or "").strip()[:OPENING_CHARACTERS] or None
        case "turn.started":
            row.update(turn=event.turn, turn_open=True, ended=None)
            _overwrite(row, data, "model", "mode", "profile")
        case "turn.ended":
            row.update(turn_open=False, ended=text(data.get("reason")))
        case "config.changed":
            _overwrite(row, data, "model", "mode", "profile", "title")
        case "generation":
            row["generations"] += 1
            row["cost"] += number(data.get("cost")) or 0.0
        case _:
            pass


def project(rows: Rows, event: Event, user_id: str) -> None:
    """Add the rows that one event makes."""
    data = event.data
    match event.type:
        case "generation":
            rows.generations.append(_generation(event, user_id))
        case "approval.requested" | "approval.resolved":
            row: Row = {
                "session_id": event.session_id,
                "request_id": text(data.get("request_id")) or "",
                "call_id": text(data.get("call_id")),
            }
            if event.type == "approval.requested":
                row |= {name: text(data.get(name)) for name in ("title", "kind")}
                rows.requested.append(row | {"requested_seq": event.seq, "requested": event.ts})
            else:
                row |= {name: text(data.get(name)) for name in ("outcome", "option", "by", "reason")}
                made = _texts(data.get("rules"))
                row["rule"] = "\n".join(made) or None
                for rule in made:
                    place: Row = {"session_id": event.session_id, "rule": rule}
                    rows.rules[event.session_id, rule] = place | {"seq": event.seq, "ts": event.ts}
                rows.resolved.append(row | {"resolved_seq": event.seq, "resolved": event.ts})
        case "config.changed":
            for rule in _texts(data.get("revoked")):
                rows.rules[event.session_id, rule] = None
        case "feedback":
            rows.feedback.append(
                _place(event)
                | {
                    "user_id": user_id,
                    "kind": text(data.get("kind")),
                    "target": _json(data.get("target")),
                    "comment": text(data.get("comment")),
                }
            )
        case "checkpoint":
            rows.snapshots.append(
                _place(event)
                | {
                    "step": event.step,
                    "snapshot": text(data.get("tree")),
                    "label": text(data.get("reason")),
                }
            )
        case _:
            pass


def save(backend: Backend, connection: Connection, rows: Rows) -> None:
    """Store new rows of the projections, except those of sessions."""
    for table, new in (
        (generations, rows.generations),
        (feedback, rows.feedback),
        (snapshots, rows.snapshots),
    ):
        if new:
            connection.execute(insert(table), new)
    for new in (rows.requested, rows.resolved):
        if new:
            # A request and its answer meet in one row, whichever this session's own events hold.
            statement = backend.insert(approvals)
            keys = {"session_id", "request_id"}
            changed = {name: statement.excluded[name] for name in new[0] if name not in keys}
            connection.execute(
                statement.on_conflict_do_update(index_elements=sorted(keys), set_=changed), new
            )
    _save_rules(backend, connection, rows.rules)


def _save_rules(
    backend: Backend, connection: Connection, changed: Mapping[tuple[str, str], Row | None]
) -> None:
    if made := [row for row in changed.values() if row is not None]:
        statement = backend.insert(rules)
        latest = {name: statement.excluded[name] for name in ("seq", "ts")}
        connection.execute(
            statement.on_conflict_do_update(index_elements=["rule", "session_id"], set_=latest), made
        )
    if gone := [key for key, row in changed.items() if row is None]:
        these = (and_(rules.c.session_id == session, rules.c.rule == rule) for session, rule in gone)
        connection.execute(delete(rules).where(or_(*these)))


def text(value: Any) -> str | None:
    """A string that every database can hold; None for what is no string."""
    if not isinstance(value, str):
        return None
    if "\0" in value:
        value = value.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return value.encode("utf-8", "replace").decode("utf-8")


def integer(value: Any) -> int | None:
    """An integer of 64 bits; None for what is none."""
    return value if isinstance(value, int) and -(1 << 63) <= value < 1 << 63 else None


def number(value: Any) -> float | None:
    """A finite number; None for what is none."""
    if not isinstance(value, (int, float)):
        return None
    return float(value) if -1e300 < value < 1e300 else None


def _overwrite(row: Row, data: Mapping[str, Any], *names: str) -> None:
    row.update({name: value for name in names if (value := text(data.get(name))) is not None})


def _place(event: Event) -> Row:
    return {"session_id": event.session_id, "seq": event.seq, "ts": event.ts, "turn": event.turn}


def _texts(value: Any) -> list[str]:
    """The strings of a list; nothing for what is none."""
    return [found for item in value if (found := text(item))] if isinstance(value, list) else []


def _json(value: Any) -> str | None:
    return None if value is None else text(encode(value).decode())


def _part(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = data.get(name)
    return value if isinstance(value, dict) else {}


def _generation(event: Event, user_id: str) -> Row:
    data = event.data
    prompt, usage, tokens = _part(data, "prompt"), _part(data, "usage"), _part(data, "tokens")
    row = _place(event) | {
        "id": text(data.get("id")) or "",
        "user_id": user_id,
        "step": event.step,
        "model": text(data.get("model")) or "",
        "policy": text(data.get("policy")),
        "request_id": text(data.get("request_id")),
        "prompt_node": text(prompt.get("node")),
        "sampling": _json(data.get("sampling")) or "{}",
        "grammar": data.get("grammar") is True,
        "finish": text(data.get("finish")) or "",
        "calls": len(data.get("calls") or ()),
        "cost": number(data.get("cost")),
        "token_exact": bool(tokens.get("completion")) and bool(tokens.get("logprobs")),
        "retries": integer(data.get("retries")) or 0,
    }
    row |= {f"prompt_{name}": integer(prompt.get(name)) for name in ("messages", "bytes", "shared")}
    row |= {name: integer(usage.get(name)) for name in ("input", "cached", "output", "reasoning")}
    return row | {name: integer(data.get(name)) for name in ("started", "first_token", "ended")}


TABLES: Final[tuple[Table, ...]] = (generations, approvals, feedback, snapshots, rules)
"""Projections whose rows belong to one session each."""
