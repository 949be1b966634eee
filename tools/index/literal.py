"""The layer of literals: which files can hold a piece of text, by the trigrams in it.

Each file has a signature, a Bloom filter with one hash: a bit for each of its trigrams (ASCII letters in
lower case), in a field of at least eight bits for each. A file without all trigrams of a literal cannot hold
it; one that has them probably does, and whoever asks looks.
"""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tools.index.layer import IndexedFile, Layer
from tools.index.slab import Slab

NAME: Final = "literal"
SHORTEST: Final = 3
"""Bytes of the shortest literal that an index can look for."""
SPARE: Final = 8
"""Bits of a signature for each trigram of the file."""
SMALLEST: Final = 8
LARGEST: Final = 19
"""Powers of two: bits of a signature."""

_FULL: Final = 16
_LOWER: Final = np.arange(256, dtype=np.uint32)
_LOWER[65:91] += 32
_FIRST, _SECOND, _THIRD = (np.uint32(one) for one in (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D))


class Literal(Layer):
    """`literal(file, at, power)`: where in the slab the signature of a file begins (bytes), and that it has
    2^power bits."""

    name = NAME

    def __init__(self, db: sqlite3.Connection, folder: Path) -> None:
        super().__init__(db, folder)
        self._slab = Slab(db, folder, NAME)

    def create(self) -> None:
        self._slab.create()
        self.db.execute(
            "CREATE TABLE literal(file INTEGER PRIMARY KEY, at INTEGER NOT NULL, power INTEGER NOT NULL)"
        )

    def add(self, files: Sequence[IndexedFile]) -> None:
        signatures = [signature(file.data) for file in files]
        at = self._slab.append(b"".join(bits.tobytes() for bits, _ in signatures))
        rows: list[tuple[int, int, int]] = []
        for file, (bits, power) in zip(files, signatures, strict=True):
            rows.append((file.id, at, power))
            at += len(bits)
        self.db.executemany("INSERT INTO literal VALUES (?, ?, ?)", rows)

    def remove(self, ids: Sequence[int]) -> None:
        self.db.executemany("DELETE FROM literal WHERE file = ?", ((one,) for one in ids))
        self._slab.touch()

    def commit(self) -> None:
        alive = self.db.execute("SELECT sum(1 << power) FROM literal").fetchone()[0] or 0
        if self._slab.wasteful(alive // 8):
            self._slab.rewrite(self._copy)
        self._slab.commit()

    def close(self) -> None:
        self._slab.close()

    def _copy(self, old: memoryview) -> None:
        moved: list[tuple[int, int]] = []
        for file, at, power in self.db.execute("SELECT file, at, power FROM literal").fetchall():
            moved.append((self._slab.append(bytes(old[at : at + (1 << power) // 8])), file))
        self.db.executemany("UPDATE literal SET at = ? WHERE file = ?", moved)


def trigrams(data: bytes) -> NDArray[np.uint32]:
    """A hash for each three bytes in a row. (n - 2,) for n bytes; none for fewer than three."""
    if len(data) < SHORTEST:
        return np.empty(0, np.uint32)
    codes = _LOWER[np.frombuffer(data, np.uint8)]
    mixed = codes[:-2] * _FIRST ^ codes[1:-1] * _SECOND ^ codes[2:] * _THIRD
    return mixed * _FIRST


def signature(data: bytes) -> tuple[NDArray[np.uint8], int]:
    """The signature of a text, packed, and the power of two of its bits."""
    hashes = trigrams(data)
    bits = np.zeros(1 << _FULL, np.bool_)
    bits[hashes >> np.uint32(32 - _FULL)] = True
    count = int(np.count_nonzero(bits))
    power = max(SMALLEST, (max(count, 1) * SPARE - 1).bit_length())
    if power > _FULL:
        power = min(power, LARGEST)
        bits = np.zeros(1 << power, np.bool_)
        bits[hashes >> np.uint32(32 - power)] = True
    elif power < _FULL:
        places = np.flatnonzero(bits) >> (_FULL - power)
        bits = np.zeros(1 << power, np.bool_)
        bits[places] = True
    return np.packbits(bits, bitorder="little"), power


def may_hold(
    slab: NDArray[np.uint8], at: NDArray[np.int64], powers: NDArray[np.int64], literal: bytes
) -> NDArray[np.bool_]:
    """Which files may hold a literal, whatever the case of its ASCII letters. (files,)"""
    kept = np.arange(len(at))
    for one in np.unique(trigrams(literal)):
        bits = int(one) >> (32 - powers[kept])
        kept = kept[(slab[at[kept] + (bits >> 3)] >> (bits & 7).astype(np.uint8)) & 1 == 1]
        if not len(kept):
            break
    found = np.zeros(len(at), np.bool_)
    found[kept] = True
    return found
