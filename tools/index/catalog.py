"""The files an index knows, and the one way in which they get into it or out of it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.index.layer import IndexedFile
from tools.index.schema import named_path, open_for_writing, stored_path

STRIKES = 2
"""Deaths of the process at a file, unchanged between them, after which it is left out."""

Stamp = tuple[int, int, int, int]
"""Size, mtime_ns, ctime_ns, inode: what shows that a file is another than before."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file ready to be written. `file` is None where it is left out, for the reason that `state` names."""

    path: str
    stamp: Stamp
    language: str | None
    state: str
    file: IndexedFile | None = None


class Catalog:
    """The database of one workspace, for its one writer. Other processes may write to it as well.

    Raises:
        sqlite3.Error: from anything.
    """

    def __init__(self, database: Path) -> None:
        self.db, self.layers = open_for_writing(database)
        self._struck: set[str | bytes] | None = None
        """Paths with strikes; None until they are read."""

    def stamps(self) -> Iterator[tuple[str, Stamp]]:
        for path, *stamp in self.db.execute("SELECT path, size, mtime_ns, ctime_ns, ino FROM files"):
            yield named_path(path), (stamp[0], stamp[1], stamp[2], stamp[3])

    def stamp(self, path: str) -> Stamp | None:
        return self.db.execute(
            "SELECT size, mtime_ns, ctime_ns, ino FROM files WHERE path = ?", (stored_path(path),)
        ).fetchone()

    def count(self) -> int:
        return self.db.execute("SELECT count(*) FROM files").fetchone()[0]

    def write(self, entries: Sequence[Entry]) -> None:
        """Put files in the place of what was known of them, in one transaction."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            self._remove([entry.path for entry in entries])
            taken: list[IndexedFile] = []
            for entry in entries:
                row = self.db.execute(
                    "INSERT INTO files(path, size, mtime_ns, ctime_ns, ino, language, state) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (stored_path(entry.path), *entry.stamp, entry.language, entry.state),
                ).lastrowid
                if entry.file is not None and row is not None:
                    taken.append(entry.file.at(row))
            for layer in self.layers:
                layer.add(taken)
            self._commit()
        except BaseException:
            self._undo()
            raise

    def remove(self, paths: Iterable[str]) -> None:
        """Forget files that are gone."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            self._remove(paths)
            self._commit()
        except BaseException:
            self._undo()
            raise

    def _remove(self, paths: Iterable[str]) -> None:
        ids: list[int] = []
        for path in paths:
            row = self.db.execute("SELECT id FROM files WHERE path = ?", (stored_path(path),)).fetchone()
            if row is not None:
                ids.append(row[0])
        if ids:
            for layer in self.layers:
                layer.remove(ids)
            self.db.executemany("DELETE FROM files WHERE id = ?", ((one,) for one in ids))

    def _commit(self) -> None:
        for layer in self.layers:
            layer.commit()
        self.db.execute("COMMIT")

    def _undo(self) -> None:
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")

    def strike(self, path: str, stamp: Stamp) -> int:
        """Note that the process died at a file; how often it has, the file being as it is."""
        known = self.db.execute(
            "SELECT stamp, count FROM strikes WHERE path = ?", (stored_path(path),)
        ).fetchone()
        self._struck = None
        number = known[1] + 1 if known is not None and known[0] == repr(stamp) else 1
        self.db.execute(
            "INSERT OR REPLACE INTO strikes VALUES (?, ?, ?)", (stored_path(path), repr(stamp), number)
        )
        return number

    def is_out(self, path: str, stamp: Stamp) -> bool:
        """Whether the process died too often at the file as it is."""
        if self._struck is None:
            self._struck = {path for (path,) in self.db.execute("SELECT path FROM strikes")}
        if stored_path(path) not in self._struck:
            return False
        known = self.db.execute(
            "SELECT stamp, count FROM strikes WHERE path = ?", (stored_path(path),)
        ).fetchone()
        return known is not None and known[1] >= STRIKES and known[0] == repr(stamp)

    def left_out(self, beyond: int) -> dict[str, int]:
        """Files that are not in the index, by reason; also written where readers find it."""
        counts = dict(
            self.db.execute(
                "SELECT state, count(*) FROM files WHERE state != 'indexed' GROUP BY state"
            ).fetchall()
        )
        if beyond:
            counts["beyond"] = beyond
        self.db.execute("BEGIN IMMEDIATE")
        self.db.execute("DELETE FROM left_out")
        self.db.executemany("INSERT INTO left_out VALUES (?, ?)", counts.items())
        self.db.execute("COMMIT")
        return counts

    def close(self) -> None:
        for layer in self.layers:
            layer.close()
        self.db.close()
