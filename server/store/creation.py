"""Making a session, from nothing or from a point of another one."""

from sqlalchemy import Connection, insert, select

from agent.events import SessionCreated, draft
from server.store import workspaces
from server.store.append import append
from server.store.backend import Backend
from server.store.entry import encode_data, prepare
from server.store.errors import LogError, StoreError, UnknownSession
from server.store.projections import blank_session, text
from server.store.tables import sessions


def create(backend: Backend, connection: Connection, session_id: str, record: SessionCreated) -> None:
    """Store the session's row and its first event. Raises as `Store.create_session`."""
    record = record.model_copy(update=_origin(connection, record))
    first = draft("session.created", record)
    workspace = workspaces.ensure(backend, connection, record.workspace, record.consent, first.ts)
    record = record.model_copy(update={"consent": workspace.consent})
    first = first.model_copy(update={"data": record.model_dump(exclude_none=True)})
    row = blank_session(session_id) | {
        "workspace_id": workspace.id,
        "parent_id": record.parent_id,
        "fork_seq": record.fork_seq,
        "last_seq": record.fork_seq or 0,
        "created": first.ts,
        "updated": first.ts,
        "term": 0,
    }
    row |= {
        name: text(getattr(record, name)) for name in ("user_id", "workspace", "model", "mode", "profile")
    }
    connection.execute(insert(sessions), row)
    [outcome] = append(backend, connection, [prepare(session_id, 0, first, encode_data(first))])
    if isinstance(outcome, LogError):
        raise outcome


def _origin(connection: Connection, record: SessionCreated) -> dict[str, str | int | None]:
    """The session whose own events hold `fork_seq`, so that no fork reads through one that adds nothing."""
    parent, fork_seq = record.parent_id, record.fork_seq
    if parent is None:
        return {"parent_id": None, "fork_seq": None}
    columns = (sessions.c.parent_id, sessions.c.fork_seq, sessions.c.last_seq)
    while True:
        row = connection.execute(
            select(*columns).where(sessions.c.id == parent).with_for_update()
        ).one_or_none()
        if row is None:
            raise UnknownSession(parent)
        if fork_seq is None:
            fork_seq = row.last_seq
        if not 1 <= fork_seq <= row.last_seq:
            raise StoreError(f"session {parent} has no event {fork_seq}: expected 1 to {row.last_seq}")
        if row.parent_id is None or fork_seq > row.fork_seq:
            return {"parent_id": parent, "fork_seq": fork_seq}
        parent = row.parent_id
