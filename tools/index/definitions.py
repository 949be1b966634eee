"""The layer of definitions: table `symbols`."""

from collections.abc import Sequence

from tools.index.layer import IndexedFile, Layer

_TABLES = """
CREATE TABLE symbols(
    id INTEGER PRIMARY KEY,
    file INTEGER NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    container TEXT NOT NULL,
    line INTEGER NOT NULL,
    last_line INTEGER NOT NULL,
    signature TEXT NOT NULL,
    doc TEXT NOT NULL
);
CREATE INDEX symbols_by_name ON symbols(name COLLATE NOCASE);
CREATE INDEX symbols_by_file ON symbols(file);
"""


class Definitions(Layer):
    """`symbols(id, file, kind, name, container, line, last_line, signature, doc)`."""

    name = "definitions"

    def create(self) -> None:
        for statement in _TABLES.split(";"):
            self.db.execute(statement)

    def add(self, files: Sequence[IndexedFile]) -> None:
        self.db.executemany(
            "INSERT INTO symbols(file, kind, name, container, line, last_line, signature, doc) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (file.id, one.kind, one.name, one.container, one.line, one.last_line, one.signature, one.doc)
                for file in files
                for one in file.symbols
            ),
        )

    def remove(self, ids: Sequence[int]) -> None:
        self.db.executemany("DELETE FROM symbols WHERE file = ?", ((one,) for one in ids))
