"""Where commands read sessions from: the running server, or the database itself."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from server.commands.database import with_store
from server.failure import CommandFailed, Usage
from server.places import data_dir
from server.terminal.host import Host, named, running

PAGE = 1000
LIST_PAGE = 200

Row = dict[str, Any]


class SessionSource(Protocol):
    """Sessions and their events, as plain records (the fields of `SessionOut` and of an event)."""

    def sessions(self, *, workspace: Path | None, query: str | None, limit: int) -> list[Row]: ...

    def session(self, id: str) -> Row: ...

    def events(self, id: str) -> Iterator[Row]: ...

    def delete(self, id: str) -> None: ...


def source(db: str | None) -> SessionSource:
    """The database that `db` names; else the server in use; else the configured database."""
    host = None if db else named() or running()
    return Served(host) if host else Stored(db)


def find(source: SessionSource, wanted: str) -> str:
    """The full id of the session that `wanted` names or begins; `last` is the latest one."""
    if len(wanted) == 26:
        return wanted.upper()
    rows = source.sessions(workspace=None, query=None, limit=1 if wanted == "last" else 1000)
    if wanted == "last" and rows:
        return str(rows[0]["id"])
    if wanted == "last":
        raise CommandFailed("there are no sessions yet; `etude chat` begins one")
    found = [str(row["id"]) for row in rows if str(row["id"]).startswith(wanted.upper())]
    if not found:
        raise CommandFailed(f"no session begins with {wanted!r}; `etude sessions list` shows those there are")
    if len(found) > 1:
        raise Usage(f"{len(found)} sessions begin with {wanted!r}; give more of the id")
    return found[0]


class Served:
    """Sessions of a server."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def sessions(self, *, workspace: Path | None, query: str | None, limit: int) -> list[Row]:
        where = f"&workspace={quote(str(workspace))}" if workspace else ""
        where += f"&query={quote(query)}" if query else ""
        rows: list[Row] = []
        before = ""
        while len(rows) < limit:
            page = self.host.get(f"/api/sessions?limit={min(LIST_PAGE, limit - len(rows))}{where}{before}")
            rows += page["sessions"]
            if not page.get("next"):
                break
            before = f"&before={quote(str(page['next']))}"
        return rows

    def session(self, id: str) -> Row:
        return self.host.get(f"/api/sessions/{quote(id)}")

    def events(self, id: str) -> Iterator[Row]:
        after: int | None = 0
        while after is not None:
            page = self.host.get(f"/api/sessions/{quote(id)}/events?after={after}&limit={PAGE}")
            yield from page["events"]
            after = page.get("next")

    def delete(self, id: str) -> None:
        self.host.delete(f"/api/sessions/{quote(id)}")


class Stored:
    """Sessions of a database."""

    def __init__(self, db: str | None) -> None:
        self.db = db

    def sessions(self, *, workspace: Path | None, query: str | None, limit: int) -> list[Row]:
        where = str(workspace) if workspace else None
        rows = with_store(self.db, lambda store: store.sessions(workspace=where, query=query, limit=limit))
        return [_record(row) for row in rows]

    def session(self, id: str) -> Row:
        return _record(with_store(self.db, lambda store: store.session(id)))

    def events(self, id: str) -> Iterator[Row]:
        for event in with_store(self.db, lambda store: store.all_events(id)):
            yield event.model_dump()

    def delete(self, id: str) -> None:
        forks = with_store(self.db, lambda store: store.delete_session(id))
        # Only here: listing sessions needs none of it.
        from server.forgetting import forget_files
        from tools.snapshots import SnapshotStore

        asyncio.run(forget_files(SnapshotStore(data_dir() / "snapshots"), id, forks))


def _record(row: Any) -> Row:
    from server.titles import session_title

    fields = (
        "id",
        "workspace",
        "user_id",
        "model",
        "mode",
        "created",
        "updated",
        "last_seq",
        "turn",
        "running",
    )
    return {**{field: getattr(row, field) for field in fields}, "title": session_title(row)}
