"""Workspaces and what their owners consent to. These settings belong to people: a rebuild keeps them."""

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, select, update
from ulid import ULID

from agent.events import now
from server.store.backend import Backend
from server.store.errors import StoreError
from server.store.projections import text
from server.store.tables import workspaces

CONSENT: Final = ("none", "metrics", "eval", "train", "publish")
"""What may be done with what is logged in a workspace; each level includes those before it."""


@dataclass(frozen=True, slots=True)
class WorkspaceRow:
    """`retention_days` None: kept until deleted. `created` in microseconds UTC."""

    id: str
    path: str
    consent: str
    retention_days: int | None
    created: int


def ensure(backend: Backend, connection: Connection, path: str, consent: str, created: int) -> WorkspaceRow:
    """The workspace of a path, made with this consent if it is new."""
    consent = consent if consent in CONSENT else "metrics"
    row = {"id": str(ULID()), "path": text(path), "consent": consent, "created": created}
    statement = backend.insert(workspaces).on_conflict_do_nothing(index_elements=[workspaces.c.path])
    connection.execute(statement, row)
    found = connection.execute(select(workspaces).where(workspaces.c.path == text(path))).mappings().one()
    return WorkspaceRow(**found)


def set_consent(
    backend: Backend, connection: Connection, path: str, consent: str, retention_days: int | None
) -> WorkspaceRow:
    """Change what later events of a workspace may be used for. Raises `StoreError` for an unknown level."""
    if consent not in CONSENT:
        raise StoreError(f"{consent!r} is no level of consent: expected one of {', '.join(CONSENT)}")
    found = ensure(backend, connection, path, consent, now())
    connection.execute(
        update(workspaces)
        .where(workspaces.c.id == found.id)
        .values(consent=consent, retention_days=retention_days)
    )
    return WorkspaceRow(found.id, found.path, consent, retention_days, found.created)


def all_rows(connection: Connection) -> list[WorkspaceRow]:
    """Every workspace, oldest first."""
    query = select(workspaces).order_by(workspaces.c.created, workspaces.c.id)
    return [WorkspaceRow(**row) for row in connection.execute(query).mappings()]
