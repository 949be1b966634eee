"""The part of a text that answers a question best."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tools.ranking.terms import LONGEST, terms_of

WINDOW: Final = 30
"""Lines of a passage."""
MAX_HITS: Final = 4000
"""Occurrences of the question's words in one text that are looked at."""

_WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Passage:
    """Lines `first` to `last` (from 1, inclusive). `best` are those with hits, what says most first."""

    first: int
    last: int
    best: tuple[int, ...]
    score: float

    @property
    def line(self) -> int:
        return self.best[0]


def best_passage(text: str, rarity: Mapping[str, float], window: int = WINDOW) -> Passage | None:
    """The window of lines in which the rarest of the question's terms come together; None where none occurs.

    score = sum over terms of rarity · n / (n + 1) with n its count in the window.
    """
    hits = _hits(text, rarity)
    if not hits:
        return None
    held: Counter[str] = Counter()
    best, span, left = 0.0, (0, 0), 0
    for right, (line, terms) in enumerate(hits):
        held.update(terms)
        while hits[left][0] <= line - window:
            held.subtract(hits[left][1])
            left += 1
        score = sum(rarity[term] * n / (n + 1) for term, n in held.items() if n)
        if score > best + 1e-9:
            best, span = score, (left, right)
    lines: dict[int, set[str]] = {}
    for line, terms in hits[span[0] : span[1] + 1]:
        lines.setdefault(line, set()).update(terms)
    best_lines = sorted(lines, key=lambda line: (-sum(rarity[term] for term in lines[line]), line))
    return Passage(hits[span[0]][0], hits[span[1]][0], tuple(best_lines), best)


def _hits(text: str, rarity: Mapping[str, float]) -> list[tuple[int, list[str]]]:
    """Lines (from 1) and the terms of each word there that has some, in order."""
    wanted: dict[str, list[str]] = {}
    for word in set(_WORD.findall(text)):
        if len(word) <= LONGEST and (terms := [term for term in terms_of(word) if term in rarity]):
            wanted[word] = terms
    if not wanted:
        return []
    # Longer words first, so that none hides another; the words are made of \w only.
    either = re.compile(rf"(?<!\w)(?:{'|'.join(sorted(wanted, key=len, reverse=True))})(?!\w)")
    starts = [0]
    starts += [found.end() for found in re.finditer("\n", text)]
    hits: list[tuple[int, list[str]]] = []
    for found in either.finditer(text):
        hits.append((bisect_right(starts, found.start()), wanted[found.group()]))
        if len(hits) == MAX_HITS:
            break
    return hits
