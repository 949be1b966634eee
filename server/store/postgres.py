"""PostgreSQL: many processes and hosts on one log."""

from importlib.util import find_spec
from typing import Any, Final

from sqlalchemy import URL, Connection, Table, create_engine, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DBAPIError

from server.store.errors import (
    DamagedDatabase,
    MissingDriver,
    NotWritable,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreUnavailable,
)

READERS: Final = 4
CONNECT_TIMEOUT_S: Final = 10


class Postgres:
    """Commits return before the server's own fsync (a crash of ours loses nothing), except at barriers."""

    name = "postgresql"

    def __init__(self, url: URL) -> None:
        if find_spec("asyncpg") is None:
            raise MissingDriver("PostgreSQL needs the package asyncpg: pip install 'etude[postgres]'")
        url = url.set(drivername="postgresql+asyncpg")
        self.place = url.render_as_string(hide_password=True)
        settings = {"application_name": "etude", "jit": "off", "lock_timeout": "20s"}
        self.writer = self._engine(url, 1, {**settings, "synchronous_commit": "off"})
        self.reader = self._engine(url, READERS, {**settings, "default_transaction_read_only": "on"})

    def _engine(self, url: URL, size: int, settings: dict[str, str]) -> Any:
        arguments = {"server_settings": settings, "timeout": CONNECT_TIMEOUT_S}
        return create_engine(
            url,
            pool_size=size,
            max_overflow=0,
            pool_timeout=600,
            connect_args=arguments,
            isolation_level="READ COMMITTED" if size == 1 else "REPEATABLE READ",
        )

    def before(self, connection: Connection, barrier: bool) -> None:
        pass

    def begun(self, connection: Connection, barrier: bool) -> None:
        if barrier:
            connection.execute(text("SET LOCAL synchronous_commit TO on"))

    def insert(self, table: Table) -> Any:
        return insert(table)

    def clock(self, connection: Connection) -> int:
        return connection.execute(
            text("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
        ).scalar_one()

    def tidy(self, connection: Connection) -> None:
        """The server does that itself."""

    def shrink(self, connection: Connection) -> int:
        return 0  # as `tidy`

    def translate(self, error: DBAPIError) -> StoreError | None:
        code = str(getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None) or "")
        if code in ("40P01", "40001", "55P03"):
            return StoreBusy(f"other processes kept {self.place} busy: try again")
        if code in ("53100", "53200"):
            return StoreFull(f"{self.place} has no space left: free some, then go on")
        if error.connection_invalidated or code[:2] in ("08", "57") or code == "53300":
            return self.unavailable(error.orig)
        if code in ("25006", "42501", "28000", "28P01", "3D000"):
            return NotWritable(
                f"{self.place} refuses ({error.orig}): check the name, the user and its rights"
            )
        if code[:2] == "XX":
            return DamagedDatabase(f"{self.place} reports damage ({error.orig}): see the server's log")
        return None

    def unavailable(self, cause: BaseException | None) -> StoreUnavailable:
        return StoreUnavailable(f"cannot reach {self.place} ({cause}): is the server running?")
