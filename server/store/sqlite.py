"""SQLite: one file, a write-ahead log, one writing connection per process."""

import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Connection, Table, create_engine, event
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import DBAPIError

from agent.events import now
from server.store.errors import (
    DamagedDatabase,
    NetworkFileSystem,
    NotWritable,
    StoreBusy,
    StoreError,
    StoreFull,
)
from server.store.filesystem import network_file_system

BUSY_TIMEOUT_MS: Final = 5_000
READERS: Final = 3
INCREMENTAL: Final = 2
SHRINK_PAGES: Final = 500
"""Pages that are given back in one transaction."""
SAMPLE_ROWS: Final = 400
"""Rows of an index that are looked at for its statistics."""
CACHE_KIB: Final = 4_096
LOG_LIMIT_BYTES: Final = 64 << 20
"""What the write-ahead log file keeps of its size after a checkpoint."""


class Sqlite:
    """The file is made with mode 0600: it holds what people and programs said."""

    name = "sqlite"

    def __init__(self, url: URL) -> None:
        if not url.database or url.database.startswith((":memory:", "file:")):
            raise StoreError(
                f"{url} names no file: expected sqlite:///PATH (four slashes before an absolute path)"
            )
        self.path = Path(url.database).absolute()
        url = url.set(drivername="sqlite+aiosqlite", database=str(self.path))
        self._make_file()
        options: dict[str, Any] = {
            "connect_args": {"isolation_level": None, "timeout": BUSY_TIMEOUT_MS / 1000},
            "pool_timeout": 600,
            "max_overflow": 0,
        }
        self.writer = create_engine(url, pool_size=1, pool_reset_on_return=None, **options)
        self.reader = create_engine(url, pool_size=READERS, **options)
        self._full_sync = False
        event.listen(self.writer, "connect", self._set_up_writer)
        event.listen(self.reader, "connect", self._set_up_reader)
        event.listen(self.writer, "begin", _begin_immediate)
        event.listen(self.reader, "begin", _begin)

    def before(self, connection: Connection, barrier: bool) -> None:
        raw: Any = connection.connection
        if raw.driver_connection.in_transaction:
            # A commit that failed, on a full disk say, leaves its transaction open.
            raw.rollback()
        # The level cannot change inside a transaction, so it goes past SQLAlchemy, which would begin one.
        if barrier is not self._full_sync:
            _run(raw, f"PRAGMA synchronous={'FULL' if barrier else 'NORMAL'}")
            self._full_sync = barrier

    def begun(self, connection: Connection, barrier: bool) -> None:
        pass

    def insert(self, table: Table) -> Any:
        return insert(table)

    def clock(self, connection: Connection) -> int:
        return now()

    def tidy(self, connection: Connection) -> None:
        """Statistics for the planner of queries, from a sample."""
        connection.exec_driver_sql(f"PRAGMA analysis_limit={SAMPLE_ROWS}")
        connection.exec_driver_sql("PRAGMA optimize")

    def shrink(self, connection: Connection) -> int:
        """A database that was made before `auto_vacuum` was set keeps its size, and uses the room again."""
        raw: Any = connection.connection

        def pragma(statement: str) -> int:
            # The driver goes on to the next page only as long as rows are fetched, and here they are empty.
            rows = raw.run_async(lambda driver: driver.execute_fetchall(f"PRAGMA {statement}"))
            return next((row[0] for row in rows if row), 0)

        if pragma("auto_vacuum") != INCREMENTAL or not (unused := pragma("freelist_count")):
            return 0
        pragma(f"incremental_vacuum({SHRINK_PAGES})")
        return (unused - pragma("freelist_count")) * pragma("page_size")

    def translate(self, error: DBAPIError) -> StoreError | None:
        code = getattr(error.orig, "sqlite_errorcode", None)
        match code & 0xFF if isinstance(code, int) else None:
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return StoreBusy(
                    f"other processes kept {self.path} busy: end those that write to it, or try again"
                )
            case sqlite3.SQLITE_FULL:
                return self._full()
            case sqlite3.SQLITE_IOERR:
                if shutil.disk_usage(self.path.parent).free < 1 << 20:
                    return self._full()
                return NotWritable(f"the disk failed under {self.path} ({error.orig}): check the disk")
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
                return NotWritable(
                    f"cannot write {self.path} ({error.orig}): "
                    "make the file and its folder writable for this user"
                )
            case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
                return DamagedDatabase(
                    f"{self.path} is damaged or not a database ({error.orig}): move it away and start anew, "
                    "or recover what is left with `sqlite3 FILE .recover`"
                )
            case _:
                return None

    def _full(self) -> StoreFull:
        return StoreFull(f"no space is left for {self.path}: free some, then go on")

    def _make_file(self) -> None:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if (found := network_file_system(self.path.parent)) is not None:
                kind, point = found
                raise NetworkFileSystem(
                    f"{self.path} lies on {kind} (mounted at {point}), where SQLite's write-ahead log loses "
                    "data: put the database on a local disk (--db sqlite:////PATH or ETUDE_DATA), or use "
                    "PostgreSQL"
                )
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            raise NotWritable(
                f"cannot open {self.path} ({error.strerror}): give a file that this user may write"
            ) from error

    def _set_up_writer(self, connection: Any, record: Any) -> None:
        self._full_sync = False
        _run(connection, f"PRAGMA auto_vacuum={INCREMENTAL}")  # of a new database; others stay as they are
        mode = _run(connection, "PRAGMA journal_mode=WAL")
        if mode != "wal":
            raise NetworkFileSystem(
                f"SQLite could not keep a write-ahead log beside {self.path} (it chose {mode!r}): "
                "put the database on a local disk, or use PostgreSQL"
            )
        _run(connection, "PRAGMA synchronous=NORMAL")
        _run(connection, f"PRAGMA journal_size_limit={LOG_LIMIT_BYTES}")
        _run(connection, f"PRAGMA cache_size=-{CACHE_KIB}")

    def _set_up_reader(self, connection: Any, record: Any) -> None:
        _run(connection, "PRAGMA query_only=ON")
        _run(connection, f"PRAGMA cache_size=-{CACHE_KIB}")


def _begin_immediate(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")


def _run(connection: Any, statement: str) -> Any:
    """Run a PRAGMA on a raw connection; returns the first value it gives."""
    cursor = connection.cursor()
    try:
        cursor.execute(statement)
        row = cursor.fetchone() if cursor.description else None
    finally:
        cursor.close()
    return row[0] if row else None
