"""What to tell a model whose `old` text is not in the file: where it nearly is, and what first differs."""

import re
from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

from tools.indentation import indentation
from tools.matching import Window, fold, split
from tools.text import line_end, line_number, line_start, visible

PROBES: Final = 24
"""Lines of `old` that are looked up in the file."""
PLACES: Final = 40
"""Places per looked-up line that are counted."""
COMPARED: Final = 200
"""Characters of a line that are compared."""
SHOWN_LINES: Final = 24
SHOWN_WIDTH: Final = 200

_WORD: Final = re.compile(r"\w{3,}")


@dataclass(frozen=True, slots=True)
class Nearest:
    """The place in the file most like the searched text.

    Lines count from 1. `line` is where it begins, `differs` the file's first line that differs; `old_line`
    the number of the line of `old` that it differs from; `hint` says how; `excerpt` shows the file there.
    """

    line: int
    differs: int
    old_line: int
    expected: str
    found: str
    hint: str
    excerpt: str


def nearest(flat: str, old: str, window: Window) -> Nearest | None:
    """The nearest candidate, at bounded cost; None where nothing in the window resembles `old`."""
    lines = split(old)[0]
    start = _by_lines(flat, lines, window)
    if start is None:
        start = _by_words(flat, lines, window)
    if start is None:
        return None
    return _compared(flat, lines, start)


def numbered(flat: str, first: int, last: int) -> str:
    """Numbered lines `first` to `last` (from 1, inclusive) of a flat text, at most `SHOWN_LINES` of them."""
    at = 0
    for _ in range(first - 1):
        at = line_end(flat, at) + 1
    shown: list[str] = []
    for number in range(first, min(last, first + SHOWN_LINES - 1) + 1):
        if at >= len(flat):
            break
        end = line_end(flat, at)
        shown.append(f"{number}\t{visible(flat[at:end], SHOWN_WIDTH)}")
        at = end + 1
    return "\n".join(shown)


def _by_lines(flat: str, lines: list[str], window: Window) -> int | None:
    """The beginning of the place that most lines of `old` vote for; a line that is rare counts more."""
    cores = [(index, line.strip()) for index, line in enumerate(lines) if len(line.strip()) > 1]
    longest = sorted(cores, key=lambda pair: len(pair[1]), reverse=True)[:PROBES]
    places: list[tuple[int, int, int]] = []
    for index, core in longest:
        here: list[int] = []
        at = flat.find(core, window.start, window.end)
        while at >= 0 and len(here) < PLACES:
            here.append(at)
            at = flat.find(core, line_end(flat, at), window.end)
        places += [(at, index, len(core) * 100 // len(here)) for at in here]
    votes: Counter[int] = Counter()
    number, last = 1, 0
    for at, index, weight in sorted(places):
        # Counting on from the last place reads the file once, however many places there are.
        number, last = number + flat.count("\n", last, at), at
        votes[number - index] += weight
    if not votes:
        return None
    best, _ = max(votes.items(), key=lambda item: (item[1], -item[0]))
    return max(best, 1)


def _by_words(flat: str, lines: list[str], window: Window) -> int | None:
    """The line most like the longest line of `old`, among those that share its rarest words."""
    index, line = max(enumerate(lines), key=lambda pair: len(pair[1].strip()), default=(0, ""))
    line = line.strip()[:COMPARED]
    words = sorted(set(_WORD.findall(line)), key=len, reverse=True)[:6]
    counted = [(count, word) for word in words if (count := flat.count(word, window.start, window.end))]
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(line)
    best, best_ratio = None, 0.5
    for _, word in sorted(counted)[:2]:
        at = flat.find(word, window.start, window.end)
        for _ in range(PLACES):
            if at < 0:
                break
            start, end = line_start(flat, at), line_end(flat, at)
            matcher.set_seq1(flat[start:end].strip()[:COMPARED])
            if matcher.quick_ratio() > best_ratio and (ratio := matcher.ratio()) > best_ratio:
                best, best_ratio = start, ratio
            at = flat.find(word, end, window.end)
    return None if best is None else max(line_number(flat, best) - index, 1)


def _compared(flat: str, lines: list[str], first: int) -> Nearest:
    at = 0
    for _ in range(first - 1):
        at = line_end(flat, at) + 1
    index = 0
    while True:
        line = lines[index]
        found = flat[at : line_end(flat, at)] if at < len(flat) else None
        if found is None or found.rstrip() != line.rstrip() or index == len(lines) - 1:
            break
        at = line_end(flat, at) + 1
        index += 1
    differs = first + index
    from_line = max(first - 2, differs - SHOWN_LINES // 2, 1)
    return Nearest(
        line=first,
        differs=differs,
        old_line=index + 1,
        expected=visible(line, SHOWN_WIDTH),
        found="" if found is None else visible(found, SHOWN_WIDTH),
        hint=_hint(flat, lines, index, found, at),
        excerpt=numbered(flat, from_line, differs + max(len(lines) - index, 3) + 1),
    )


def _hint(flat: str, lines: list[str], index: int, found: str | None, at: int) -> str:
    line = lines[index]
    if found is None:
        return "the file ends before this line"
    if not line.strip() or not found.strip():
        if not line.strip() and not found.strip():
            return "these lines agree; the lines around them do not"
        expected, actual = _blank_run(lines, index), _blank_lines(flat, at)
        return f"`old` has {_count(expected)} here, the file has {_count(actual)}"
    if line.strip() == found.strip():
        if indentation(line) != indentation(found):
            return f"indentation differs: `old` has {_blanks(line)}, the file has {_blanks(found)}"
        return "only blanks at the end of the line differ"
    if fold(line.strip()) == fold(found.strip()):
        return "only quotes, dashes or special spaces differ"
    if line.strip() in found:
        return "this line of `old` is only a part of the file's line; give the whole line"
    if found.strip() in line:
        return "this line of `old` is longer than the file's line"
    column = next(
        (i for i, (a, b) in enumerate(zip(line, found, strict=False)) if a != b), min(len(line), len(found))
    )
    return f"they differ from column {column + 1} on"


def _blank_run(lines: list[str], index: int) -> int:
    """Blank lines around a line of `old`: those above it, and it and those below where it is blank."""
    above = index
    while above and not lines[above - 1].strip():
        above -= 1
    below = index
    while below < len(lines) and not lines[below].strip():
        below += 1
    return below - above


def _blank_lines(flat: str, at: int) -> int:
    count = 0
    above = at
    while above and not flat[(start := line_start(flat, above - 1)) : above - 1].strip():
        count, above = count + 1, start
    while at < len(flat) and not flat[at : line_end(flat, at)].strip():
        count, at = count + 1, line_end(flat, at) + 1
    return count


def _count(blank: int) -> str:
    return "no blank line" if not blank else f"{blank} blank line{'s' * (blank > 1)}"


def _blanks(line: str) -> str:
    blanks = indentation(line)
    if not blanks:
        return "none"
    if "\t" not in blanks:
        return f"{len(blanks)} space{'s' * (len(blanks) > 1)}"
    return f"{len(blanks)} tab{'s' * (len(blanks) > 1)}" if " " not in blanks else "tabs and spaces"
