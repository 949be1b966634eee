"""The layer of references: which identifiers a file uses, and on which lines."""

import sqlite3
from array import array
from collections.abc import Sequence
from zlib import crc32

from tools.index.layer import IndexedFile, Layer

MAX_LINES = 65_535
"""Lines remembered of one identifier in one file."""


class Uses(Layer):
    """`uses(file, words, lines)`: sorted hashes of the identifiers; then, for each, a count and its lines.

    One row a file keeps the index small and quick to write; a query looks through all rows for a hash in C,
    and whoever shows a line looks whether the word is there.
    """

    name = "uses"

    def create(self) -> None:
        self.db.execute(
            "CREATE TABLE uses(file INTEGER PRIMARY KEY, words BLOB NOT NULL, lines BLOB NOT NULL)"
        )

    def add(self, files: Sequence[IndexedFile]) -> None:
        self.db.executemany(
            "INSERT INTO uses VALUES (?, ?, ?)",
            ((file.id, *_packed(file.words)) for file in files if file.words),
        )

    def remove(self, ids: Sequence[int]) -> None:
        self.db.executemany("DELETE FROM uses WHERE file = ?", ((one,) for one in ids))


def _packed(words: dict[bytes, list[int]]) -> tuple[bytes, bytes]:
    hashed = sorted(zip(map(crc32, words), words.values(), strict=True))
    hashes: list[int] = []
    numbers: list[int] = []
    last, at = -1, 0
    for one, lines in hashed:
        if one == last:  # two words of one hash: their lines are told together
            numbers[at] += min(len(lines), MAX_LINES)
        else:
            last, at = one, len(numbers)
            hashes.append(one)
            numbers.append(min(len(lines), MAX_LINES))
        numbers += lines[:MAX_LINES]
    return array("I", hashes).tobytes(), array("I", numbers).tobytes()


def files_using(db: sqlite3.Connection, word: str) -> list[tuple[int, list[int]]]:
    """Files that (almost certainly) use an identifier, each with the lines it is on."""
    wanted = crc32(word.encode())
    needle = array("I", [wanted]).tobytes()
    found: list[tuple[int, list[int]]] = []
    for file, packed, numbers in db.execute(
        "SELECT file, words, lines FROM uses WHERE instr(words, ?) > 0", (needle,)
    ):
        words = array("I", packed)
        if wanted not in words:  # the bytes lay across two hashes
            continue
        lines, at = array("I", numbers), 0
        for one in words:
            if one == wanted:
                found.append((file, list(lines[at + 1 : at + 1 + lines[at]])))
                break
            at += lines[at] + 1
    return found
