"""Where a piece of text lies in a file: exactly, or by the first tier of tolerance that finds it.

Tiers, strictest first; each counts all its matches, and the caller refuses more than one:

- `exact`: the very characters, anywhere, also within a line;
- `trailing-space`: whole lines equal but for blanks at their ends;
- `indentation`: whole lines equal but for an indentation that differs uniformly;
- `punctuation`: that, and typographic quotes, dashes and spaces taken for their ASCII forms;
- `similar`: that, and every line within an edit distance of a tenth of its length. Numbers must be equal:
  lines that differ in a number are different lines, not misspelt ones.

Positions are those of a flat text (`tools.text`). The whole file is only ever scanned by `str.find` and
`str.count`; Python looks at the few places where the rarest part of the searched text occurs.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from tools.indentation import Shift, shift_between
from tools.text import line_end, line_start

Tier = Literal["exact", "trailing-space", "indentation", "punctuation", "similar"]

SIMILARITY: Final = 0.9
MAX_MATCHES: Final = 100
"""Matches counted before we stop: "100 or more" is as ambiguous as it gets."""
MAX_CANDIDATES: Final = 20_000
"""Places looked at per tier; a tier with more of them finds nothing, lest it miss a second match."""
MAX_CELLS: Final = 100_000
"""Cells of edit-distance tables per search: some tens of milliseconds."""
MAX_LINES: Final = 2_000
MAX_CHARACTERS: Final = 200_000
"""The longest `old` that tiers other than exact look for."""
MAX_LINE: Final = 2_000
"""The longest line, in characters, that tier `similar` looks for."""

_BLANKS: Final = " \t"
_FOLDED: Final = {
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u02bc\u00b4", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"'),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
    **dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "),
}
_FOLD: Final = str.maketrans(_FOLDED)
_WORD: Final = re.compile("[^\\s'\"`" + re.escape("-" + "".join(_FOLDED)) + "]+")
_NUMBER: Final = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Match:
    """A place: the flat range from `start` to `end`; `shifted` where it is indented differently."""

    start: int
    end: int
    shifted: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """All places of the winning tier; none at all where no tier found any."""

    tier: Tier
    matches: tuple[Match, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a flat text that is searched, at line boundaries."""

    start: int
    end: int


def fold(text: str) -> str:
    """Typographic punctuation and spaces as ASCII, one character for one."""
    return text if text.isascii() else text.translate(_FOLD)


def find(
    flat: str, old: str, window: Window, *, only_exact: bool = False, whole_lines: bool = False
) -> Found:
    """All matches of `old` (with flat line endings) by the strictest tier that has any.

    With `whole_lines`, exact matches count only where a line begins, as those of the other tiers do.
    """
    places = _occurrences(flat, old, window, MAX_CANDIDATES if whole_lines else MAX_MATCHES)
    if whole_lines:
        places = (at for at in places if not at or flat[at - 1] == "\n")
    exact = tuple(Match(at, at + len(old)) for at in places)
    lines, whole = split(old)
    too_long = len(lines) > MAX_LINES or len(old) > MAX_CHARACTERS
    if exact or only_exact or too_long or not any(map(str.strip, lines)):
        return Found("exact", exact)
    search = _Search(flat, lines, whole, window)
    return search.by_line() or search.by_word() or search.by_distance() or Found("exact", ())


def split(text: str) -> tuple[list[str], bool]:
    """Lines of a piece of text, and whether its last line is ended."""
    lines = text.split("\n")
    if len(lines) > 1 and not lines[-1]:
        return lines[:-1], True
    return lines, False


def within(one: str, other: str, limit: int) -> bool:
    """Whether the edit distance (Levenshtein) of two strings is at most `limit`, in O(limit · length)."""
    if abs(len(one) - len(other)) > limit:
        return False
    start = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        start += 1
    one, other = one[start:], other[start:]
    while one and other and one[-1] == other[-1]:
        one, other = one[:-1], other[:-1]
    if max(len(one), len(other)) <= limit:
        return True
    far = limit + 1
    previous = {column: column for column in range(min(limit, len(other)) + 1)}
    for row in range(1, len(one) + 1):
        current: dict[int, int] = {}
        for column in range(max(row - limit, 0), min(row + limit, len(other)) + 1):
            if column == 0:
                current[0] = row
                continue
            current[column] = min(
                previous.get(column, far) + 1,
                current.get(column - 1, far) + 1,
                previous.get(column - 1, far) + (one[row - 1] != other[column - 1]),
            )
        if min(current.values()) > limit:
            return False
        previous = current
    return previous.get(len(other), far) <= limit


def allowance(line: str, other: str) -> int:
    """The edits that keep two lines at least 90 % similar."""
    return int(max(len(line), len(other)) * (1 - SIMILARITY) + 1e-9)


class _Search:
    """One search of whole lines; what every tier needs is worked out once."""

    def __init__(self, flat: str, lines: list[str], whole: bool, window: Window) -> None:
        self.flat = flat
        self.lines = lines
        self.whole = whole
        self.window = window
        self.cores = [line.strip(_BLANKS) for line in lines]
        self.cells = 0

    def by_line(self) -> Found | None:
        """Tiers `trailing-space` and `indentation`, at the places of the rarest line."""
        distinct = sorted({core for core in self.cores if core}, key=len, reverse=True)[:2]
        core = self._rarest(distinct)
        if core is None:
            return None
        places = self._places(core, self.cores.index(core))
        matches = self._verified(places, lambda old, found: old == found)
        close = [match for match in matches if not match.shifted]
        if close:
            return Found("trailing-space", tuple(close))
        return Found("indentation", tuple(matches)) if matches else None

    def by_word(self) -> Found | None:
        """Tier `punctuation`, at the places of the rarest word that no folding can touch."""
        cores = [fold(core) for core in self.cores]
        if self.flat.isascii() and cores == self.cores:
            return None
        every = {word for core in self.cores for word in _WORD.findall(core)}
        words = sorted(every, key=len, reverse=True)[:2]
        words += sorted((word for word in every if _NUMBER.search(word)), key=len, reverse=True)[:2]
        word = self._rarest(words)
        if word is None:
            return None
        index = next(index for index, core in enumerate(self.cores) if word in core)
        places = self._places(word, index)
        matches = self._verified(places, lambda old, found: fold(old) == fold(found))
        return Found("punctuation", tuple(matches)) if matches else None

    def by_distance(self) -> Found | None:
        """Tier `similar`, at the places of the rarest number (it must be equal), else of a line's pieces.

        With k edits in a line, one of its k + 1 pieces is untouched.
        """
        if max(map(len, self.cores)) > MAX_LINE:
            return None
        numbers = {number: i for i, core in enumerate(self.cores) for number in _NUMBER.findall(core)}
        longest = sorted(numbers, key=len, reverse=True)[:2]
        options = [([number], numbers[number]) for number in longest]
        if not options:
            order = sorted(range(len(self.cores)), key=lambda index: len(self.cores[index]), reverse=True)
            options = [(_pieces(self.cores[index]), index) for index in order[:3] if self.cores[index]]
        counted = [(sum(map(self._count, parts)), index, parts) for parts, index in options]
        count, index, parts = min(counted)
        if count > MAX_CANDIDATES:
            return None
        places = {place for part in parts for place in self._places(part, index)}
        matches = self._verified(sorted(places), self._similar)
        if self.cells > MAX_CELLS:
            return None
        return Found("similar", tuple(matches)) if matches else None

    def _similar(self, old: str, found: str) -> bool:
        limit = allowance(old, found)
        if abs(len(old) - len(found)) > limit or self.cells > MAX_CELLS:
            return False
        old, found = fold(old), fold(found)
        if old == found:
            return True
        if not limit or _NUMBER.findall(old) != _NUMBER.findall(found):
            return False
        ours, theirs = Counter(old), Counter(found)
        if max((ours - theirs).total(), (theirs - ours).total()) > limit:
            return False
        self.cells += (2 * limit + 1) * len(old)
        return within(old, found, limit)

    def _rarest(self, parts: list[str]) -> str | None:
        """The part with the fewest occurrences; None where one has none, or all have too many."""
        best, least = None, MAX_CANDIDATES + 1
        for part in dict.fromkeys(parts):
            count = self._count(part)
            if count == 0:
                return None
            if count < least:
                best, least = part, count
        return best

    def _count(self, part: str) -> int:
        return self.flat.count(part, self.window.start, self.window.end)

    def _places(self, part: str, index: int) -> Iterator[int]:
        """Where a first line begins so that the line at `index` holds `part`."""
        seen: set[int] = set()
        for at in _occurrences(self.flat, part, self.window, MAX_CANDIDATES):
            start = line_start(self.flat, at)
            above = index
            while above and start:
                start = line_start(self.flat, start - 1)
                above -= 1
            if not above and start >= self.window.start and start not in seen:
                seen.add(start)
                yield start

    def _verified(self, places: Iterator[int] | list[int], same: Callable[[str, str], bool]) -> list[Match]:
        matches: list[Match] = []
        for start in places:
            match = self._match(start, same)
            if match is not None:
                matches.append(match)
                if len(matches) == MAX_MATCHES:
                    break
        return matches

    def _match(self, start: int, same: Callable[[str, str], bool]) -> Match | None:
        found: list[str] = []
        at = end = start
        for core in self.cores:
            if at >= self.window.end:
                return None
            end = line_end(self.flat, at)
            line = self.flat[at:end]
            if not same(core, line.strip(_BLANKS)):
                return None
            found.append(line)
            at = end + 1
        shift = shift_between(self.lines, found, self.flat)
        if shift is None:
            return None
        return Match(start, end + 1 if self.whole else end, shift != Shift())


def _occurrences(flat: str, part: str, window: Window, limit: int) -> Iterator[int]:
    """Where `part` begins, overlapping places included, at most `limit` of them."""
    at = flat.find(part, window.start, window.end)
    while at >= 0 and limit:
        yield at
        limit -= 1
        at = flat.find(part, at + 1, window.end)


def _pieces(core: str) -> list[str]:
    size = len(core)
    count = int(size * (1 - SIMILARITY) / SIMILARITY + 1e-9) + 1
    return [core[index * size // count : (index + 1) * size // count] for index in range(count)]
