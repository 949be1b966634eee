"""Who may write a session: a lease with a number (`term`) that every commit checks.

A lease runs for `LEASE_US` and is renewed long before. A holder on this host whose process is gone is
replaced at once; any other only after its lease ran out. A holder that was replaced learns it with its next
commit.
"""

import os
import secrets
import socket
from functools import cache
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, RowMapping, select, update

from server.store.backend import Backend
from server.store.errors import Owner, SessionBusy, UnknownSession
from server.store.tables import sessions

LEASE_US: Final = 30_000_000
RENEW_S: Final = 8.0


def this_process() -> Owner:
    """A new owner identity for this process."""
    pid = os.getpid()
    return Owner(_host(), pid, started(pid) or 0, secrets.token_hex(8))


def started(pid: int) -> int | None:
    """When a process of this host started, in a unit that only serves to compare; None if it is gone.

    A process that has died and was not reaped counts as gone.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _started_elsewhere(pid)
    except (ProcessLookupError, PermissionError):
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def is_gone(owner: Owner) -> bool:
    """Whether the process is known to have ended. False when nobody here can know."""
    return owner.host == _host() and started(owner.pid) != owner.started


def owner_of(row: RowMapping | dict[str, Any]) -> Owner | None:
    """Who holds the session of this row, dead or alive."""
    if row["owner_nonce"] is None:
        return None
    return Owner(row["owner_host"], row["owner_pid"], row["owner_started"], row["owner_nonce"])


def live_owner(row: RowMapping | dict[str, Any], now: int) -> Owner | None:
    """Who holds the session of this row and is not known to be gone."""
    owner = owner_of(row)
    if owner is None or (row["lease_until"] or 0) <= now or is_gone(owner):
        return None
    return owner


def acquire(
    backend: Backend, connection: Connection, session_id: str, me: Owner, abandoned: int | None = None
) -> int:
    """Make `me` the holder; returns the new term. `abandoned` as in `refuse_live`.

    Raises:
        UnknownSession: there is none.
        SessionBusy: somebody live holds it.
    """
    row = refuse_live(backend, connection, session_id, me, abandoned)
    term = row["term"] + 1
    connection.execute(
        update(sessions)
        .where(sessions.c.id == session_id)
        .values(
            term=term,
            owner_host=me.host,
            owner_pid=me.pid,
            owner_started=me.started,
            owner_nonce=me.nonce,
            lease_until=backend.clock(connection) + LEASE_US,
        )
    )
    return term


def refuse_live(
    backend: Backend,
    connection: Connection,
    session_id: str,
    me: Owner | None = None,
    abandoned: int | None = None,
) -> RowMapping:
    """The row of a session that nobody live holds, locked. Raises like `acquire`.

    `abandoned` is a term that `me` gave up without being able to say so here (the disk was full).
    """
    query = select(sessions).where(sessions.c.id == session_id).with_for_update()
    row = connection.execute(query).mappings().one_or_none()
    if row is None:
        raise UnknownSession(session_id)
    owner = live_owner(row, backend.clock(connection))
    ours = owner is not None and me is not None and owner.nonce == me.nonce
    if owner is not None and not (ours and row["term"] == abandoned):
        raise SessionBusy(session_id, owner)
    return row


def renew(backend: Backend, connection: Connection, me: Owner) -> None:
    """Extend every lease that `me` holds."""
    until = backend.clock(connection) + LEASE_US
    connection.execute(update(sessions).where(sessions.c.owner_nonce == me.nonce).values(lease_until=until))


def release(connection: Connection, session_id: str, term: int) -> None:
    """End a lease; nothing happens if it was lost already."""
    connection.execute(
        update(sessions)
        .where(sessions.c.id == session_id, sessions.c.term == term)
        .values(owner_host=None, owner_pid=None, owner_started=None, owner_nonce=None, lease_until=None)
    )


@cache
def _host() -> str:
    """Name, boot and pid namespace: processes that share all three can see each other's pids."""
    parts = [socket.gethostname()]
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        try:
            parts.append(os.readlink(path) if path.endswith("pid") else Path(path).read_text().strip())
        except OSError:
            parts.append("")
    return "/".join(parts)


def _started_elsewhere(pid: int) -> int | None:
    """`started` where there is no /proc."""
    import psutil

    try:
        process = psutil.Process(pid)
        gone = process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        return None if gone else int(process.create_time() * 1_000_000)
    except psutil.Error:
        return None
