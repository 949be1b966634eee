"""The one transaction that makes drafts part of the log."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from agent.events import VERSION, Event
from server.store.backend import Backend
from server.store.blobs import Blob, add, among, lock_stored
from server.store.entry import Entry
from server.store.errors import LeaseLost, LogError, MissingBlob
from server.store.projections import LEASE, Row, Rows, fold, project, save
from server.store.tables import events, sessions

Outcome = Event | LogError

_UPDATED = [column.name for column in sessions.columns if column.name not in LEASE and not column.primary_key]


def append(backend: Backend, connection: Connection, entries: Sequence[Entry]) -> list[Outcome]:
    """Store entries in their order; the result of each is its event, or why it was left out.

    An entry that is left out takes the later ones of its holder with it: they were submitted in the belief
    that it would be stored. Those of other sessions are unharmed.
    """
    if _stored_before(connection, entries):
        return [entry.refusal or entry.event or _lost(entry) for entry in entries]
    rows = _lock_sessions(connection, {entry.session_id for entry in entries})
    stored = lock_stored(connection, set().union(*(entry.needed for entry in entries)))
    outcomes: list[Outcome] = []
    left_out: dict[tuple[str, int], LogError] = {}
    fresh: dict[str, Blob] = {}
    references: Counter[str] = Counter()
    new, projected, touched = list[Row](), Rows(), dict[str, int]()
    for entry in entries:
        holder = entry.session_id, entry.term
        row = rows.get(entry.session_id)
        refusal = left_out.get(holder) or _refusal(entry, row, stored, fresh)
        if refusal is not None or row is None:
            refusal = refusal or LeaseLost(f"session {entry.session_id} was deleted")
            left_out[holder] = entry.refusal = refusal
            outcomes.append(refusal)
            continue
        for hash, blob in entry.blobs.items():
            if hash not in stored and hash not in fresh:
                fresh[hash] = blob
                if blob.parent is not None:
                    references[blob.parent] += 1
        references.update(entry.refs)
        entry.refusal = None
        entry.event = event = _place(entry, row["last_seq"] + 1)
        fold(row, event)
        project(projected, event, row["user_id"])
        new.append(_row(entry, event, row["user_id"]))
        touched[entry.session_id] = entry.term
        outcomes.append(event)
    if new:
        add(backend, connection, fresh, references)
        connection.execute(insert(events), new)
        save(backend, connection, projected)
        _update_sessions(connection, [(rows[id], term) for id, term in sorted(touched.items())])
    return outcomes


def _lost(entry: Entry) -> LogError:
    return LogError(f"session {entry.session_id} lost an event; open it again to see what its log holds")


def _refusal(entry: Entry, row: Row | None, stored: set[str], fresh: dict[str, Blob]) -> LogError | None:
    if row is None:
        return LeaseLost(f"session {entry.session_id} was deleted while it was open")
    if row["term"] != entry.term:
        return LeaseLost(
            f"session {entry.session_id} is held by another process now (term {row['term']}, this one had "
            f"{entry.term}): attach to that server, or open the session again"
        )
    missing = entry.needed - entry.blobs.keys() - stored - fresh.keys()
    if missing:
        return MissingBlob(
            f"a {entry.draft.type!r} event of session {entry.session_id} names content that is not stored: "
            f"{', '.join(sorted(missing))}; hand it in with the event"
        )
    return None


def _place(entry: Entry, seq: int) -> Event:
    draft = entry.draft
    return Event(
        session_id=entry.session_id,
        seq=seq,
        ts=draft.ts,
        turn=draft.turn,
        step=draft.step,
        type=draft.type,
        data=draft.data,
    )


def _row(entry: Entry, event: Event, user_id: str) -> Row:
    return {
        "session_id": event.session_id,
        "seq": event.seq,
        "v": VERSION,
        "ts": event.ts,
        "turn": event.turn,
        "step": event.step,
        "type": event.type,
        "user_id": user_id,
        "payload": entry.payload,
        "blob": entry.blob,
        "refs": " ".join(sorted(entry.refs)) or None,
    }


def _lock_sessions(connection: Connection, ids: set[str]) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for condition in among(sessions.c.id, ids):
        query = select(sessions).where(condition).order_by(sessions.c.id).with_for_update()
        found.update((row["id"], dict(row)) for row in connection.execute(query).mappings())
    return found


def _update_sessions(connection: Connection, changed: list[tuple[Row, int]]) -> None:
    statement = (
        update(sessions)
        .where(sessions.c.id == bindparam("b_id"), sessions.c.term == bindparam("b_term"))
        .values({name: bindparam(f"b_{name}") for name in _UPDATED})
    )
    parameters: list[dict[str, Any]] = [
        {f"b_{name}": row[name] for name in _UPDATED} | {"b_id": row["id"], "b_term": term}
        for row, term in changed
    ]
    connection.execute(statement, parameters)


def _stored_before(connection: Connection, entries: Sequence[Entry]) -> bool:
    """Whether an earlier attempt committed although its answer was lost with the connection."""
    tried = next((entry.event for entry in entries if entry.event is not None), None)
    if tried is None:
        return False
    query = select(events.c.ts, events.c.type).where(
        events.c.session_id == tried.session_id, events.c.seq == tried.seq
    )
    row = connection.execute(query).one_or_none()
    return row is not None and tuple(row) == (tried.ts, tried.type)
