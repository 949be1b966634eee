"""Reading the log: pages by key, through the chain of forks, with long data fetched from its blobs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, and_, or_, select

from agent.events import Event
from agent.payload import decode
from server.store import blobs
from server.store.errors import DamagedDatabase, Owner, UnknownGeneration, UnknownSession
from server.store.leases import live_owner
from server.store.tables import events, generations, sessions

EVENT_COLUMNS: Final = (
    events.c.session_id,
    events.c.seq,
    events.c.v,
    events.c.ts,
    events.c.turn,
    events.c.step,
    events.c.type,
    events.c.payload,
    events.c.blob,
)


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session as lists show it. Times are integer microseconds UTC.

    `running`: a turn is under way and the process that runs it is alive. `ended` is the reason of the last
    turn's end, None before the first and while one is open. `opening` is the start of the first prompt.
    """

    id: str
    user_id: str
    workspace_id: str
    workspace: str
    parent_id: str | None
    fork_seq: int | None
    title: str | None
    opening: str | None
    model: str
    mode: str
    profile: str
    created: int
    updated: int
    last_seq: int
    turn: int
    running: bool
    ended: str | None
    generations: int
    cost: float
    term: int
    owner: Owner | None

    @property
    def cursor(self) -> str:
        """Where a list that ended with this row goes on."""
        return f"{self.updated}.{self.id}"


@dataclass(frozen=True, slots=True)
class Segment:
    """The events `after < seq <= upto` of a session belong to the one that is read (None: no end)."""

    session_id: str
    after: int
    upto: int | None


def lineage(connection: Connection, session_id: str) -> list[Segment]:
    """From the first ancestor to the session itself. Raises `UnknownSession`."""
    segments: list[Segment] = []
    name: str | None = session_id
    upto: int | None = None
    while name is not None:
        query = select(sessions.c.parent_id, sessions.c.fork_seq).where(sessions.c.id == name)
        row = connection.execute(query).one_or_none()
        if row is None:
            if segments:
                raise DamagedDatabase(f"session {session_id} continues {name}, which is not stored")
            raise UnknownSession(session_id)
        after = row.fork_seq or 0 if row.parent_id else 0
        segments.append(Segment(name, after, upto))
        name, upto = row.parent_id, after if upto is None else min(after, upto)
    segments.reverse()
    return segments


def page(connection: Connection, session_id: str, after: int, limit: int) -> list[Event]:
    """Up to `limit` events with `seq > after`, in order. Raises `UnknownSession`."""
    rows: list[Any] = []
    for segment in lineage(connection, session_id):
        if len(rows) >= limit:
            break
        start = max(after, segment.after)
        if segment.upto is not None and start >= segment.upto:
            continue
        query = select(*EVENT_COLUMNS).where(events.c.session_id == segment.session_id, events.c.seq > start)
        if segment.upto is not None:
            query = query.where(events.c.seq <= segment.upto)
        query = query.order_by(events.c.seq).limit(limit - len(rows))
        rows.extend(connection.execute(query))
    return decoded(connection, rows, session_id)


def decoded(connection: Connection, rows: Sequence[Any], session_id: str | None = None) -> list[Event]:
    """Events from rows of `select(*EVENT_COLUMNS)`, as those of `session_id` or of their own session."""
    long = blobs.read(connection, {row.blob for row in rows if row.blob is not None})
    found: list[Event] = []
    for row in rows:
        payload = row.payload
        if row.blob is not None and row.blob in long:
            payload = blobs.unpack(long[row.blob])
        if payload is None:
            raise DamagedDatabase(f"event {row.seq} of session {row.session_id} has lost its data")
        found.append(
            Event(
                v=row.v,
                session_id=session_id or row.session_id,
                seq=row.seq,
                ts=row.ts,
                turn=row.turn,
                step=row.step,
                type=row.type,
                data=decode(payload),
            )
        )
    return found


def session(connection: Connection, session_id: str, now: int) -> SessionRow:
    """Raises `UnknownSession`."""
    query = select(sessions).where(sessions.c.id == session_id)
    row = connection.execute(query).mappings().one_or_none()
    if row is None:
        raise UnknownSession(session_id)
    return _session(row, now)


def session_list(
    connection: Connection,
    now: int,
    *,
    user_id: str | None,
    workspace: str | None,
    query: str | None,
    limit: int,
    before: str | None,
) -> list[SessionRow]:
    """The sessions last written to, newest first. Raises `UnknownSession` for an unknown `before`."""
    statement = select(sessions).order_by(sessions.c.updated.desc(), sessions.c.id.desc()).limit(limit)
    if user_id is not None:
        statement = statement.where(sessions.c.user_id == user_id)
    if workspace is not None:
        statement = statement.where(sessions.c.workspace == workspace)
    if query:
        found = (
            column.icontains(query, autoescape=True) for column in (sessions.c.title, sessions.c.opening)
        )
        statement = statement.where(or_(*found))
    if before is not None:
        updated, id = _cursor(connection, before)
        earlier = and_(sessions.c.updated == updated, sessions.c.id < id)
        statement = statement.where(or_(sessions.c.updated < updated, earlier))
    return [_session(row, now) for row in connection.execute(statement).mappings()]


def generation(connection: Connection, id: str) -> tuple[Event, dict[str, blobs.Blob]]:
    """The event of a generation, and the prompt nodes it names, still packed. Raises `UnknownGeneration`."""
    where = select(generations.c.session_id, generations.c.seq).where(generations.c.id == id)
    place = connection.execute(where.order_by(generations.c.session_id).limit(1)).one_or_none()
    if place is None:
        raise UnknownGeneration(f"there is no generation {id}")
    query = select(*EVENT_COLUMNS).where(events.c.session_id == place.session_id, events.c.seq == place.seq)
    [event] = decoded(connection, connection.execute(query).all())
    nodes: dict[str, blobs.Blob] = {}
    tokens = event.data.get("tokens") or {}
    for node in (event.data["prompt"]["node"], tokens.get("prompt")):
        if node is not None:
            nodes |= blobs.read_chain(connection, node)
    return event, nodes


def _session(row: Any, now: int) -> SessionRow:
    owner = live_owner(row, now)
    running = bool(row["turn_open"]) and owner is not None
    fields = {name: row[name] for name in SessionRow.__dataclass_fields__ if name in row}
    return SessionRow(**fields, running=running, owner=owner)


def _cursor(connection: Connection, before: str) -> tuple[int, str]:
    """A cursor's place; a bare session id stands for its row's."""
    updated, _, id = before.partition(".")
    if id and updated.isascii() and updated.isdigit() and len(updated) < 19:  # fits 64 bits
        return int(updated), id
    row = connection.execute(select(sessions.c.updated).where(sessions.c.id == before)).one_or_none()
    if row is None:
        raise UnknownSession(before)
    return row.updated, before
