"""The database of an index: made, checked, thrown away and made again where it is of no use."""

import fcntl
import hashlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tools.errors import EnvironmentFault
from tools.index.layer import Layer
from tools.index.layers import LAYERS_VERSION, layers

VERSION: Final = 1
BUSY_S: Final = 10.0

_BUSY: Final = ("SQLITE_BUSY", "SQLITE_LOCKED")

_TABLES = """
CREATE TABLE files(
    id INTEGER PRIMARY KEY,
    path UNIQUE NOT NULL,
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    ctime_ns INTEGER NOT NULL,
    ino INTEGER NOT NULL,
    language TEXT,
    state TEXT NOT NULL
);
CREATE TABLE strikes(path PRIMARY KEY, stamp TEXT NOT NULL, count INTEGER NOT NULL);
CREATE TABLE left_out(reason TEXT PRIMARY KEY, count INTEGER NOT NULL);
"""
# `path` is TEXT, or BLOB where the name is not UTF-8. `state` is "indexed" or why the file is left out:
# "large", "binary", "unreadable", "crashed".


def database_of(root: Path, folder: Path) -> Path:
    """The database of a workspace below a cache folder."""
    name = hashlib.blake2b(os.fsencode(root), digest_size=10).hexdigest()
    return folder / "index" / name / f"index-{VERSION}.{LAYERS_VERSION}.db"


def stored_path(path: str) -> str | bytes:
    """A path as the table `files` holds it."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return os.fsencode(path)
    return path


def named_path(value: str | bytes) -> str:
    """A path from the table `files`."""
    return os.fsdecode(value) if isinstance(value, bytes) else value


def open_for_reading(database: Path) -> sqlite3.Connection:
    """A read-only connection, usable from any one thread at a time.

    Raises:
        EnvironmentFault: there is no database (yet).
    """
    try:
        db = sqlite3.connect(
            f"{database.as_uri()}?mode=ro",
            uri=True,
            timeout=BUSY_S,
            isolation_level=None,
            check_same_thread=False,
        )
    except sqlite3.Error as error:
        raise EnvironmentFault(f"The index cannot be read: {error}. Ask again in a moment.") from error
    try:
        db.execute("PRAGMA query_only = 1")
        db.execute("PRAGMA mmap_size = 268435456")
    except sqlite3.Error as error:
        db.close()
        raise EnvironmentFault(f"The index cannot be read: {error}. Ask again in a moment.") from error
    return db


def open_for_writing(database: Path) -> tuple[sqlite3.Connection, list[Layer]]:
    """The writer's connection, and the layers on it. A damaged database is deleted and made again."""
    database.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _alone(database):
        try:
            return _opened(database)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorname in _BUSY:
                raise
        discard(database)
        return _opened(database)


@contextmanager
def _alone(database: Path) -> Iterator[None]:
    """One process at a time: SQLite does not wait for another that switches to its write-ahead log, and a
    database must not be deleted under one that is just opening it."""
    name = f"{database}.opening"
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _opened(database: Path) -> tuple[sqlite3.Connection, list[Layer]]:
    db = _connected(database)
    try:
        made = layers(db, database.parent)
        if not _is_made(db):
            db.execute("BEGIN IMMEDIATE")
            if not _is_made(db):  # another server may have been quicker
                for statement in _TABLES.split(";"):
                    db.execute(statement)
                for layer in made:
                    layer.create()
            db.execute("COMMIT")
        elif db.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise sqlite3.DatabaseError("the database is damaged")
    except BaseException:
        db.close()
        raise
    return db, made


def discard(database: Path) -> None:
    """Delete a database with what belongs to it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        with suppress(FileNotFoundError):
            os.unlink(f"{database}{suffix}")


def _connected(database: Path) -> sqlite3.Connection:
    descriptor = os.open(database, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    os.close(descriptor)
    db = sqlite3.connect(database, timeout=BUSY_S, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("PRAGMA cache_size = -32768")
    db.execute("PRAGMA temp_store = MEMORY")
    return db


def _is_made(db: sqlite3.Connection) -> bool:
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = 'left_out'").fetchone() is not None
