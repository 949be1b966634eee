"""The layer of terms: what each file is about, for ranking."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.index.layer import IndexedFile, Layer
from tools.index.slab import Slab
from tools.ranking.corpus import packed
from tools.ranking.prior import is_data, prior
from tools.ranking.terms import Memory, occurring

NAME: Final = "words"
DATA_BYTES: Final = 20_000
"""How much of a file of data is taken in."""
ENTRY: Final = 6
"""Bytes of one term of one file: its hash, then its packed counts."""


class Words(Layer):
    """`words(file, at, terms, body, names, path, prior)`: where in the slab the terms of a file begin, in
    bytes, how many there are, the length of its fields, and its prior. The slab holds blocks as `Packed`
    makes them."""

    name = NAME

    def __init__(self, db: sqlite3.Connection, folder: Path) -> None:
        super().__init__(db, folder)
        self._slab = Slab(db, folder, NAME)
        self._known = Memory()

    def create(self) -> None:
        self._slab.create()
        self.db.execute(
            "CREATE TABLE words(file INTEGER PRIMARY KEY, at INTEGER NOT NULL, terms INTEGER NOT NULL, "
            "body INTEGER NOT NULL, names INTEGER NOT NULL, path INTEGER NOT NULL, prior REAL NOT NULL)"
        )

    def add(self, files: Sequence[IndexedFile]) -> None:
        blocks: list[bytes] = []
        rows: list[tuple[int, int, int, int, int, int, float]] = []
        at = 0
        for file in files:
            names = occurring(" ".join(symbol.name for symbol in file.symbols), self._known)
            data = file.data[:DATA_BYTES] if is_data(file.path) else file.data
            body = occurring(data, self._known)
            terms = packed(body, names, occurring(file.path, self._known))
            blocks.append(terms.block())
            rows.append((file.id, at, len(terms.hashes), *terms.lengths, prior(file.path)))
            at += len(blocks[-1])
        base = self._slab.append(b"".join(blocks))
        self.db.executemany(
            "INSERT INTO words VALUES (?, ?, ?, ?, ?, ?, ?)",
            ((row[0], base + row[1], *row[2:]) for row in rows),
        )

    def remove(self, ids: Sequence[int]) -> None:
        self.db.executemany("DELETE FROM words WHERE file = ?", ((one,) for one in ids))
        self._slab.touch()

    def commit(self) -> None:
        alive = ENTRY * (self.db.execute("SELECT sum(terms) FROM words").fetchone()[0] or 0)
        if self._slab.wasteful(alive):
            self._slab.rewrite(self._copy)
        self._slab.commit()

    def close(self) -> None:
        self._slab.close()

    def _copy(self, old: memoryview) -> None:
        moved: list[tuple[int, int]] = []
        for file, at, terms in self.db.execute("SELECT file, at, terms FROM words").fetchall():
            size = terms * ENTRY
            moved.append((self._slab.append(bytes(old[at : at + size]) + b"\0" * (-size % 4)), file))
        self.db.executemany("UPDATE words SET at = ? WHERE file = ?", moved)
