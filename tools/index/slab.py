"""Bytes of many files in one that only grows: written by the child, mapped into memory by whoever searches.

What a slab holds is said by rows of the database: they are committed after the bytes are written, so a reader
never meets a place that is not there yet. A slab is not shortened under its readers: when too much of it is
waste, what is alive is copied to a new one and the old one loses its name.
"""

import mmap
import os
import secrets
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS slabs(name TEXT PRIMARY KEY, file TEXT NOT NULL, version INTEGER NOT NULL)"
)
WASTE: Final = 4 * 1024 * 1024
"""Bytes that may be waste whatever the share is."""


class Slab:
    """The writer's end, used within transactions of `db`. `name` is that of its row in the table `slabs`.

    Several processes may write to one database in turn, so each transaction looks anew which file it is.

    Raises:
        sqlite3.DatabaseError: the file is gone; build the index again.
    """

    def __init__(self, db: sqlite3.Connection, folder: Path, name: str) -> None:
        self._db, self._folder, self._name = db, folder, name
        # Databases of several versions may lie in one folder.
        self._prefix = f"{Path(db.execute('PRAGMA database_list').fetchone()[2]).stem}-{name}-"
        self._file = ""
        self._descriptor = -1
        self._changed = False
        self._replaced: list[str] = []

    def create(self) -> None:
        """Begin an empty slab; what earlier ones left behind goes."""
        self._db.execute(TABLE)
        for old in self._folder.glob(f"{self._prefix}*.slab"):
            old.unlink(missing_ok=True)
        self._begin()
        self._db.execute("INSERT OR REPLACE INTO slabs VALUES (?, ?, 1)", (self._name, self._file))

    def append(self, data: bytes) -> int:
        """Write at the end; where the data begins."""
        descriptor = self._open()
        at = os.lseek(descriptor, 0, os.SEEK_END)
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        self._changed = True
        return at

    def touch(self) -> None:
        """Rows changed: readers must look again."""
        self._changed = True

    def commit(self) -> None:
        if self._changed:
            self._db.execute("UPDATE slabs SET version = version + 1 WHERE name = ?", (self._name,))
            self._changed = False
        elif self._replaced and self._current() not in self._replaced:
            # Only now is it certain that the database no longer speaks of them.
            for old in self._replaced:
                (self._folder / old).unlink(missing_ok=True)
            self._replaced.clear()

    def wasteful(self, alive: int) -> bool:
        """Whether most of the file is waste, where `alive` bytes are not."""
        size = os.fstat(self._open()).st_size
        return size - alive > max(WASTE, alive)

    def rewrite(self, copy: Callable[[memoryview], None]) -> None:
        """Begin a new file. `copy` gets the old bytes and appends what is to stay."""
        descriptor, old = self._open(), self._file
        with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
            self._begin()
            self._db.execute("UPDATE slabs SET file = ? WHERE name = ?", (self._file, self._name))
            copy(view)
        os.close(descriptor)
        self._replaced.append(old)
        self._changed = True

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor, self._file = -1, ""

    def _begin(self) -> None:
        self._file = f"{self._prefix}{secrets.token_hex(6)}.slab"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(self._folder / self._file, flags, 0o600)

    def _current(self) -> str:
        row = self._db.execute("SELECT file FROM slabs WHERE name = ?", (self._name,)).fetchone()
        if row is None:
            raise sqlite3.DatabaseError(f"the slab {self._name} is not known")
        return row[0]

    def _open(self) -> int:
        current = self._current()
        if current != self._file or not (self._folder / current).exists():
            self.close()
            try:
                self._descriptor = os.open(self._folder / current, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            except OSError as error:
                raise sqlite3.DatabaseError(f"the slab {self._name} is gone: {error}") from error
            self._file = current
        return self._descriptor


def version_of(db: sqlite3.Connection, name: str) -> tuple[str, int]:
    """The file of a slab, and a number that grows whenever its rows change; ("", 0) where there is none.

    Raises:
        sqlite3.Error: the database has no slabs (yet).
    """
    row = db.execute("SELECT file, version FROM slabs WHERE name = ?", (name,)).fetchone()
    return row or ("", 0)


def mapped(folder: Path, file: str) -> mmap.mmap | bytes:
    """The bytes of a slab, read-only.

    Raises:
        FileNotFoundError: it was rewritten meanwhile; ask the database again.
    """
    descriptor = os.open(folder / file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not os.fstat(descriptor).st_size:
            return b""
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    finally:
        os.close(descriptor)
