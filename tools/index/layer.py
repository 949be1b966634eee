"""What one kind of index keeps about the files of a workspace."""

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from tools.index.symbol import Symbol


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A text file as it is being indexed.

    `id` is its row in `files`. `data` are its bytes (at most 1 MB, no NUL), `symbols` its definitions in
    order (none where `language` is None). `words` maps the identifiers in its code (not in comments or
    strings) to the lines they are on.
    """

    id: int
    path: str
    language: str | None
    data: bytes
    symbols: tuple[Symbol, ...]
    words: dict[bytes, list[int]]

    def at(self, number: int) -> "IndexedFile":
        """The same as row `number`."""
        return replace(self, id=number)

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


class Layer(ABC):
    """Rows about files, in the database of the index (or in `folder` beside it).

    Lives in the child process alone, and all calls come from one thread. Everything between two `commit`s is
    one transaction of `db`, opened and closed by the caller; what lies in `folder` must cope with a crash
    between the two. The other side reads the same tables through `Index.connect`. Whoever changes what a
    layer keeps raises `LAYERS_VERSION`.
    """

    name: ClassVar[str]

    def __init__(self, db: sqlite3.Connection, folder: Path) -> None:
        self.db, self.folder = db, folder

    @abstractmethod
    def create(self) -> None:
        """Make the tables of an empty database."""

    @abstractmethod
    def add(self, files: Sequence[IndexedFile]) -> None:
        """Take in files that have no rows yet."""

    @abstractmethod
    def remove(self, ids: Sequence[int]) -> None:
        """Forget files: deleted ones, and changed ones before they are added again."""

    def commit(self) -> None:  # noqa: B027 - a layer may have nothing to do here
        """Before the transaction is committed."""

    def close(self) -> None:  # noqa: B027 - as above
        """The workspace's index is closed."""
