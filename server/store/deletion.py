"""Deleting a session: its events, its projections, and the blobs that nobody else names."""

from collections import Counter
from collections.abc import Iterable

from sqlalchemy import Connection, delete, insert, literal, select, update

from server.store import blobs
from server.store.backend import Backend
from server.store.errors import Owner
from server.store.leases import refuse_live
from server.store.projections import TABLES
from server.store.rebuild import project_session
from server.store.tables import events, sessions


def delete_session(
    backend: Backend,
    connection: Connection,
    session_id: str,
    me: Owner,
    abandoned: int | None = None,
    unused_since: int | None = None,
) -> list[str] | None:
    """Remove a session; returns its forks, which first get what they still read. `abandoned` as in
    `refuse_live`. None where it stays, because it was written to at or after `unused_since`.

    Raises:
        UnknownSession: there is none.
        SessionBusy: somebody holds it.
    """
    row = refuse_live(backend, connection, session_id, me, abandoned)
    if unused_since is not None and row["updated"] >= unused_since:
        return None
    children = select(sessions.c.id, sessions.c.fork_seq).where(sessions.c.parent_id == session_id)
    forks = connection.execute(children.order_by(sessions.c.id).with_for_update()).all()
    for child in forks:
        _hand_down(backend, connection, session_id, child.id, child.fork_seq)
        place = {"parent_id": row["parent_id"], "fork_seq": row["fork_seq"]}
        connection.execute(update(sessions).where(sessions.c.id == child.id).values(place))
    references = _references(connection, session_id, None)
    for table in TABLES:
        connection.execute(delete(table).where(table.c.session_id == session_id))
    connection.execute(delete(events).where(events.c.session_id == session_id))
    connection.execute(delete(sessions).where(sessions.c.id == session_id))
    blobs.release(connection, references)
    return [child.id for child in forks]


def _hand_down(backend: Backend, connection: Connection, parent: str, child: str, upto: int) -> None:
    """Copy the parent's own events up to `upto` to a child and project them."""
    columns = [literal(child), *(column for column in events.c if column.name != "session_id")]
    names = ["session_id", *(column.name for column in events.c if column.name != "session_id")]
    read = select(*columns).where(events.c.session_id == parent, events.c.seq <= upto)
    connection.execute(insert(events).from_select(names, read))
    blobs.add(backend, connection, {}, _references(connection, parent, upto))
    for table in TABLES:
        connection.execute(delete(table).where(table.c.session_id == child))
    row = project_session(backend, connection, child)
    connection.execute(update(sessions).where(sessions.c.id == child).values(row))


def _references(connection: Connection, session_id: str, upto: int | None) -> Counter[str]:
    """How often a session's own events name each blob."""
    query = select(events.c.refs).where(events.c.session_id == session_id, events.c.refs.is_not(None))
    if upto is not None:
        query = query.where(events.c.seq <= upto)
    named: Iterable[str] = connection.execute(query).scalars()
    return Counter(hash for refs in named for hash in refs.split(" "))
