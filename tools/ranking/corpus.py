"""The terms of many files as arrays, and how well each file answers a question (BM25F).

After Robertson, Zaragoza and Taylor, "Simple BM25 extension to multiple weighted fields" (CIKM 2004): the
frequencies of a term in the fields of a file are weighted, normalised by field length and added up before
they saturate, so that a word in a path and in the text does not count twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tools.ranking.terms import hash_of

FIELDS: Final = ("body", "names", "path")
WEIGHTS: Final = (1.0, 3.0, 2.0)
LENGTH: Final = (0.9, 0.5, 0.3)
"""How much the length of each field counts against it (BM25's b)."""
SATURATION: Final = 3.0
"""BM25's k1."""

_BITS: Final = (9, 5, 2)
"""Bits of the count of a term in each field, packed in 16."""
_SHIFTS: Final = np.array((0, 9, 14), np.int64)
_MOST: Final = np.array([(1 << bits) - 1 for bits in _BITS], np.int64)
_COUNT: Final = 30
"""Bits of a count while it is added up."""


@dataclass(frozen=True, slots=True)
class Packed:
    """One file: sorted hashes of its terms, packed counts of each, and the length of each field in terms."""

    hashes: NDArray[np.uint32]
    counts: NDArray[np.uint16]
    lengths: tuple[int, int, int]

    def block(self) -> bytes:
        """Hashes, then counts, filled up to whole words."""
        data = self.hashes.tobytes() + self.counts.tobytes()
        return data + b"\0" * (-len(data) % 4)


Terms = tuple[NDArray[np.uint32], NDArray[np.int64]]
"""Hashes, each once, and the count of each."""


def packed(body: Terms, names: Terms, path: Terms) -> Packed:
    """The terms of a file as an index keeps them. A hash may come several times in a field."""
    fields = (body, names, path)
    # A hash, a field and a count make one number: to sort those is much quicker than to sort by them.
    rows = np.concatenate([hashes for hashes, _ in fields]).astype(np.uint64) << np.uint64(32)
    at = 0
    for number, (hashes, counts) in enumerate(fields):
        rows[at : at + len(hashes)] |= counts.astype(np.uint64) | np.uint64(number << _COUNT)
        at += len(hashes)
    rows.sort()
    keys, counts = _summed(rows >> np.uint64(_COUNT), (rows & np.uint64((1 << _COUNT) - 1)).astype(np.int64))
    field = (keys & np.uint64(3)).astype(np.int64)
    hashes, counts = _summed(
        keys >> np.uint64(32 - _COUNT), np.minimum(counts, _MOST[field]) << _SHIFTS[field]
    )
    lengths = (int(body[1].sum()), int(names[1].sum()), int(path[1].sum()))
    return Packed(hashes.astype(np.uint32), counts.astype(np.uint16), lengths)


def _summed(
    keys: NDArray[np.uint64], counts: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Each of sorted keys once, with the sum of its counts."""
    if not len(keys):
        return keys, counts
    first = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    return keys[first], np.add.reduceat(counts, first)


@dataclass(frozen=True, slots=True)
class Corpus:
    """All files, in one buffer that is seen as `words` (uint32) and as `halves` (uint16).

    The block of file i begins at `words[starts[i]]`: `sizes[i]` hashes, then as many packed counts. What
    belongs to no file may hold anything. `lengths` is (files, fields).
    """

    words: NDArray[np.uint32]
    halves: NDArray[np.uint16]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    lengths: NDArray[np.float64]

    @classmethod
    def of(cls, files: Sequence[Packed]) -> "Corpus":
        blocks = [file.block() for file in files]
        ends = np.cumsum([len(block) // 4 for block in blocks], dtype=np.int64)
        buffer = b"".join(blocks)
        return cls(
            np.frombuffer(buffer, np.uint32),
            np.frombuffer(buffer, np.uint16),
            ends - np.array([len(block) // 4 for block in blocks], np.int64),
            np.array([len(file.hashes) for file in files], np.int64),
            np.array([file.lengths for file in files], np.float64).reshape(-1, len(FIELDS)),
        )

    def scores(
        self, question: Mapping[str, int], among: "Corpus | None" = None
    ) -> tuple[NDArray[np.float64], dict[str, float]]:
        """The score of each file, and the rarity (idf) of each term that occurs at all.

        With `among`, these files are weighed as if they were of that corpus: for texts that are newer.
        """
        found = np.zeros(len(self.starts))
        rarity: dict[str, float] = {}
        if not len(found):
            return found, rarity
        every = self if among is None else among
        norms = self._norms(every.lengths if len(every.lengths) else self.lengths)
        for term, weight in question.items():
            files, counts = self._holding(term)
            holding = len(files) if among is None else max(len(among._holding(term)[0]), 1)
            if not len(files):
                continue
            frequency = np.zeros(len(files))
            for field, (shift, most) in enumerate(zip(_SHIFTS, _MOST, strict=True)):
                frequency += WEIGHTS[field] * ((counts >> shift) & most) / norms[files, field]
            rarity[term] = idf(holding, max(len(every.starts), holding))
            found[files] += weight * rarity[term] * frequency * (SATURATION + 1) / (SATURATION + frequency)
        return found, rarity

    def _holding(self, term: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The files with a term, and its packed counts there."""
        at = np.flatnonzero(self.words == np.uint32(hash_of(term)))
        order = np.argsort(self.starts, kind="stable")
        place = np.searchsorted(self.starts[order], at, "right") - 1
        at, place = at[place >= 0], place[place >= 0]
        files = order[place]
        inside = at < (self.starts + self.sizes)[files]
        at, files = at[inside], files[inside]
        halves = 2 * (self.starts + self.sizes)[files] + at - self.starts[files]
        return files, self.halves[halves].astype(np.int64)

    def _norms(self, lengths: NDArray[np.float64]) -> NDArray[np.float64]:
        share = np.array(LENGTH)
        return np.maximum(1 - share + share * self.lengths / np.maximum(lengths.mean(0), 1e-9), 1e-9)


def idf(holding: int, files: int) -> float:
    """ln(1 + (N - n + 0.5) / (n + 0.5)), never negative."""
    return float(np.log(1 + (files - holding + 0.5) / (holding + 0.5)))
