"""The schema of the database: checked with one query at each start, changed by Alembic when it is behind."""

from pathlib import Path
from typing import Final

from sqlalchemy import Connection, text

from server.store.backend import Backend
from server.store.database import Database
from server.store.errors import NewerSchema

REVISIONS: Final = ("0001", "0002")
"""Every revision in `migrations/versions`, oldest first; the last one is what this code expects."""
HEAD: Final = REVISIONS[-1]
SCRIPTS: Final = Path(__file__).resolve().parents[2] / "migrations"
"""Beside this package, in a checkout as in an installed wheel; never looked up by name."""
LOCK: Final = 0x65747564
"""Key of PostgreSQL's advisory lock: one process migrates, others wait for it."""


async def ensure_schema(database: Database) -> None:
    """Bring the schema to `HEAD`. Safe when several processes start at once.

    Raises:
        NewerSchema: a newer Etude wrote this database.
    """
    if await database.read(version) != HEAD:
        await database.write(lambda connection: _upgrade(database.backend, connection), barrier=True)


def version(connection: Connection) -> str | None:
    """The revision of the database; None for an empty one.

    Raises:
        NewerSchema: it is none of `REVISIONS`.
    """
    if not connection.dialect.has_table(connection, "alembic_version"):
        return None
    found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
    if found is not None and found not in REVISIONS:
        raise NewerSchema(
            f"this database is at revision {found}, this Etude knows revisions up to {HEAD}: "
            "update Etude, or choose another database with --db"
        )
    return found


def _upgrade(backend: Backend, connection: Connection) -> None:
    if backend.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
    if version(connection) == HEAD:
        return
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, HEAD)
