"""Projections from the log alone: of one session, or of all.

What is not in the log stays as it is: the settings of workspaces, and the leases of running processes.
"""

from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, text

from agent.events import Event
from server.store import workspaces
from server.store.backend import Backend
from server.store.projections import (
    LEASE,
    PROJECTED,
    TABLES,
    Row,
    Rows,
    blank_session,
    fold,
    project,
    save,
)
from server.store.reader import EVENT_COLUMNS, decoded
from server.store.tables import events, sessions

PAGE = 1_000


def rebuild(backend: Backend, connection: Connection) -> dict[str, int]:
    """Drop and refill every projection; returns the number of rows of each."""
    if backend.name == "postgresql":
        names = ", ".join(table.name for table in (sessions, *TABLES))
        connection.execute(text(f"LOCK TABLE {names} IN EXCLUSIVE MODE"))
    columns = [sessions.c.id, *(sessions.c[name] for name in sorted(LEASE))]
    leases = {row["id"]: dict(row) for row in connection.execute(select(*columns)).mappings()}
    for table in (sessions, *TABLES):
        connection.execute(delete(table))
    ids = (
        connection.execute(select(events.c.session_id).distinct().order_by(events.c.session_id))
        .scalars()
        .all()
    )
    for id in ids:
        row = project_session(backend, connection, id)
        connection.execute(insert(sessions), {**row, "term": 0, **leases.get(id, {})})
    counts = {"workspaces": len(workspaces.all_rows(connection))}
    for table in (sessions, *TABLES):
        counts[table.name] = connection.execute(select(func.count()).select_from(table)).scalar_one()
    return counts


def project_session(backend: Backend, connection: Connection, session_id: str) -> Row:
    """Fill the projections of one session, which are empty; returns its own row without the lease."""
    row, first, consent, created = blank_session(session_id), None, "metrics", 0
    after = 0
    while True:
        query = select(*EVENT_COLUMNS, events.c.user_id).where(
            events.c.session_id == session_id, events.c.seq > after, events.c.type.in_(sorted(PROJECTED))
        )
        page = connection.execute(query.order_by(events.c.seq).limit(PAGE)).all()
        if not page:
            break
        rows = Rows()
        for event, user_id in zip(decoded(connection, page), (item.user_id for item in page), strict=True):
            first = first or event
            if event.type == "session.created":
                consent, created = str(event.data.get("consent")), event.ts
            fold(row, event)
            project(rows, event, user_id)
        save(backend, connection, rows)
        after = page[-1].seq
    _bound(connection, row)
    row |= parent_of(first)
    row["workspace_id"] = workspaces.ensure(backend, connection, row["workspace"] or "", consent, created).id
    return row


def parent_of(first: Event | None) -> dict[str, Any]:
    """Where reading goes on below a session whose first own event this is.

    Every log begins with `session.created`. After a parent was deleted, its events lie in its children, so
    the first event is the parent's own and names what the parent continued.
    """
    if first is None or first.data.get("parent_id") is None:
        return {"parent_id": None, "fork_seq": None}
    return {"parent_id": first.data["parent_id"], "fork_seq": first.data["fork_seq"]}


def _bound(connection: Connection, row: Row) -> None:
    """What depends on all events, not only on those that project."""
    query = select(func.max(events.c.seq), func.max(events.c.ts)).where(events.c.session_id == row["id"])
    row["last_seq"], row["updated"] = connection.execute(query).one()
