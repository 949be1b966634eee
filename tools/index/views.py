"""The slabs as a reader sees them: loaded when they changed, searched in a thread of the caller."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tools.errors import EnvironmentFault
from tools.index import Index
from tools.index.literal import NAME as LITERAL
from tools.index.literal import may_hold
from tools.index.schema import named_path
from tools.index.slab import mapped, version_of
from tools.index.words import NAME as WORDS
from tools.ranking.corpus import Corpus

_AT_ONCE: Final = 500


@dataclass(slots=True)
class Signatures:
    """Signatures of all indexed files: `ids` are rows of `files`."""

    version: tuple[str, int]
    slab: NDArray[np.uint8]
    ids: NDArray[np.int64]
    at: NDArray[np.int64]
    powers: NDArray[np.int64]
    heads: dict[tuple[int, int], bool] = field(default_factory=dict)
    """What is known of files that are not indexed, by row and mtime: whether they begin as text does."""
    others: list[str] | None = None
    """Files that are not indexed and that ripgrep must look at; None where nobody has asked."""

    def holding(self, literals: Iterable[bytes]) -> list[int]:
        """Rows of the files that may hold all of these."""
        found = np.ones(len(self.ids), np.bool_)
        for literal in literals:
            found &= may_hold(self.slab, self.at, self.powers, literal)
        return self.ids[found].tolist()


@dataclass(slots=True)
class Terms:
    """The terms of all indexed files. `priors` is (files,)."""

    version: tuple[str, int]
    ids: NDArray[np.int64]
    priors: NDArray[np.float64]
    corpus: Corpus


@contextmanager
def reading(index: Index) -> Iterator[sqlite3.Connection]:
    """A connection that sees one state of the index.

    Raises:
        EnvironmentFault: there is none (yet), or it is being made anew.
    """
    try:
        with closing(index.connect()) as db:
            db.execute("BEGIN")
            yield db
    except sqlite3.Error as error:
        raise EnvironmentFault(f"The index cannot be read: {error}. Ask again in a moment.") from error


def signatures(index: Index, db: sqlite3.Connection) -> Signatures:
    """Raises EnvironmentFault as `reading`."""
    known = index.views.get(LITERAL)
    version = version_of(db, LITERAL)
    if isinstance(known, Signatures) and known.version == version:
        return known
    rows = _rows(db, "SELECT file, at, power FROM literal ORDER BY at")
    made = Signatures(
        version,
        np.frombuffer(_bytes(index, version[0]), np.uint8),
        rows[:, 0].astype(np.int64),
        rows[:, 1].astype(np.int64),
        rows[:, 2].astype(np.int64),
        known.heads if isinstance(known, Signatures) else {},
    )
    if len(rows) and made.at[-1] + (1 << made.powers[-1]) // 8 > len(made.slab):
        raise EnvironmentFault("The index is shorter than it says. Ask again in a moment.")
    index.views[LITERAL] = made
    return made


def terms(index: Index, db: sqlite3.Connection) -> Terms:
    """Raises EnvironmentFault as `reading`."""
    known = index.views.get(WORDS)
    version = version_of(db, WORDS)
    if isinstance(known, Terms) and known.version == version:
        return known
    rows = _rows(db, "SELECT file, at, terms, body, names, path, prior FROM words ORDER BY at")
    data = memoryview(_bytes(index, version[0]))
    halves = np.frombuffer(data[: len(data) // 4 * 4], np.uint16)
    corpus = Corpus(
        halves.view(np.uint32),
        halves,
        rows[:, 1].astype(np.int64) // 4,
        rows[:, 2].astype(np.int64),
        rows[:, 3:6],
    )
    if len(rows) and 2 * corpus.starts[-1] + 3 * corpus.sizes[-1] > len(halves):
        raise EnvironmentFault("The index is shorter than it says. Ask again in a moment.")
    index.views[WORDS] = made = Terms(version, rows[:, 0].astype(np.int64), rows[:, 6], corpus)
    return made


def paths_of(db: sqlite3.Connection, ids: list[int]) -> Mapping[int, str]:
    """Workspace-relative paths of rows of `files`."""
    found: dict[int, str] = {}
    for at in range(0, len(ids), _AT_ONCE):
        some = ids[at : at + _AT_ONCE]
        marks = ",".join("?" * len(some))
        for number, path in db.execute(f"SELECT id, path FROM files WHERE id IN ({marks})", some):
            found[number] = named_path(path)
    return found


def _rows(db: sqlite3.Connection, query: str) -> NDArray[np.float64]:
    """All rows as numbers; exact up to 2^53."""
    rows: list[Any] = db.execute(query).fetchall()
    width = query.partition(" FROM ")[0].count(",") + 1
    return np.array(rows, np.float64).reshape(-1, width)


def _bytes(index: Index, file: str) -> Any:
    try:
        return mapped(index.database.parent, file)
    except FileNotFoundError as error:
        raise EnvironmentFault("The index was rewritten meanwhile. Ask again in a moment.") from error
