"""Unified diffs at bounded cost: exact where that is cheap, coarser (never wrong) where it would not be."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

from tools.encodings import Binary
from tools.text import Text, line_number, split_lines

CONTEXT: Final = 3
PAIRS: Final = 2_000_000
"""Line pairs one diff may compare; what is left after that is shown as replaced whole."""


@dataclass(frozen=True, slots=True)
class Span:
    """A changed range: lines from `start` to `end` of the old text, from `new_start` to `new_end` of the new.

    Positions are characters; all lie at the beginning of a line or at the end of the text.
    """

    start: int
    end: int
    new_start: int
    new_end: int


def unified_diff(before: bytes | None, after: bytes | None, path: str) -> tuple[str, int, int]:
    """The diff of a file's content (None = absent), with the number of lines added and removed.

    The text is empty where nothing differs; a binary file gets one line that says so.
    """
    if before == after:
        return "", 0, 0
    try:
        old, new = _text(before), _text(after)
    except Binary as binary:
        return f"Binary file {path} differs ({binary.kind})\n", 0, 0
    return render(old, new, [_trimmed(old, new)], path, made=before is None, deleted=after is None)


def render(
    old: str,
    new: str,
    spans: Sequence[Span],
    path: str,
    *,
    made: bool = False,
    deleted: bool = False,
    context: int = CONTEXT,
) -> tuple[str, int, int]:
    """The diff of two texts that are equal outside `spans` (in order, apart from each other)."""
    budget = _Budget(PAIRS)
    exact = [part for span in spans for part in _refined(old, new, span, budget)]
    lines = [
        "--- /dev/null\n" if made else f"--- a/{path}\n",
        "+++ /dev/null\n" if deleted else f"+++ b/{path}\n",
    ]
    added = removed = 0
    for group in _groups(old, exact, context):
        body, plus, minus = _hunk(old, new, group, context)
        lines += body
        added += plus
        removed += minus
    return "".join(lines) if exact or made or deleted else "", added, removed


def changed_lines(before: list[str], after: list[str]) -> list[tuple[int, int, int, int]]:
    """Ranges of lines that differ, `(start, end, new_start, new_end)`, in order and apart from each other."""
    head, most = 0, min(len(before), len(after))
    while head < most and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < most - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    ranges: list[tuple[int, int, int, int]] = []
    at = new_at = head
    middle, new_middle = before[head : len(before) - tail], after[head : len(after) - tail]
    for same_old, same_new in _pieces(middle, new_middle, _Budget(PAIRS)):
        end, new_end = at + len(same_old), new_at + len(same_new)
        if same_old is not same_new and (at, new_at) != (end, new_end):
            if ranges and (ranges[-1][1], ranges[-1][3]) == (at, new_at):
                at, new_at = ranges[-1][0], ranges[-1][2]
                ranges.pop()
            ranges.append((at, end, new_at, new_end))
        at, new_at = end, new_end
    return ranges


def _text(data: bytes | None) -> str:
    if not data:
        return ""
    text = Text.decode(data)
    return comparable("\ufeff" + text.body if text.encoding.bom else text.body)


def comparable(body: str) -> str:
    """The text of a file as a diff shows it: always encodable, with "\n" where a file has only CRs."""
    if "\r" in body and "\n" not in body:
        body = body.replace("\r", "\n")
    return body if body.isascii() else body.encode("utf-8", "replace").decode("utf-8")


class _Budget:
    def __init__(self, pairs: int) -> None:
        self.pairs = pairs

    def take(self, pairs: int) -> bool:
        if pairs > self.pairs:
            return False
        self.pairs -= pairs
        return True


def _trimmed(old: str, new: str) -> Span:
    """The whole texts as one span without the lines that are equal at both ends."""
    head = old.rfind("\n", 0, _common(old, new, len(old), len(new), False)) + 1
    tail = _common(old, new, len(old) - head, len(new) - head, True)
    tail = _whole_lines(old, len(old) - tail, head)
    tail = _whole_lines(new, len(new) - tail, head)
    return Span(head, len(old) - tail, head, len(new) - tail)


def _whole_lines(text: str, position: int, low: int) -> int:
    """How many characters from the next beginning of a line at or after `position` there are to the end."""
    if position == low or (position and text[position - 1] == "\n"):
        return len(text) - position
    end = text.find("\n", position)
    return 0 if end < 0 else len(text) - end - 1


def _common(old: str, new: str, old_size: int, new_size: int, from_end: bool) -> int:
    """The length of the longest common prefix (or suffix), found by comparing ever smaller slices."""
    low, high = 0, min(old_size, new_size)
    while low < high:
        middle = (low + high + 1) // 2
        if from_end:
            same = old[len(old) - middle : len(old) - low] == new[len(new) - middle : len(new) - low]
        else:
            same = old[low:middle] == new[low:middle]
        low, high = (middle, high) if same else (low, middle - 1)
    return low


def _refined(old: str, new: str, span: Span, budget: _Budget) -> Iterator[Span]:
    """The lines of a span that really differ."""
    before, after = split_lines(old[span.start : span.end]), split_lines(new[span.new_start : span.new_end])
    start, new_start = span.start, span.new_start
    for same_old, same_new in _pieces(before, after, budget):
        end, new_end = start + _size(same_old), new_start + _size(same_new)
        if same_old is not same_new:
            yield Span(start, end, new_start, new_end)
        start, new_start = end, new_end


def _pieces(before: list[str], after: list[str], budget: _Budget) -> Iterator[tuple[list[str], list[str]]]:
    """Consecutive pairs of line lists: the same list object twice where lines are equal."""
    at = new_at = 0
    for anchor, new_anchor in [*_anchors(before, after), (len(before), len(after))]:
        if anchor < at or new_anchor < new_at:
            continue
        old_part, new_part = before[at:anchor], after[new_at:new_anchor]
        if old_part == new_part:
            yield old_part, old_part
        elif budget.take(len(old_part) * len(new_part)):
            matcher = SequenceMatcher(None, old_part, new_part, autojunk=False)
            for tag, start, end, new_start, new_end in matcher.get_opcodes():
                same = old_part[start:end]
                yield (same, same) if tag == "equal" else (same, new_part[new_start:new_end])
        else:
            yield old_part, new_part
        if anchor < len(before):
            same = before[anchor : anchor + 1]
            yield same, same
        at, new_at = anchor + 1, new_anchor + 1


def _anchors(before: list[str], after: list[str]) -> list[tuple[int, int]]:
    """Lines that occur once on both sides, in the longest run that keeps their order (patience diff)."""
    if len(before) * len(after) <= 10_000:
        return []
    once, new_once = Counter(before), Counter(after)
    where = {line: index for index, line in enumerate(after) if new_once[line] == 1}
    pairs = [(i, where[line]) for i, line in enumerate(before) if once[line] == 1 and line in where]
    tails: list[int] = []
    last: list[int] = []
    previous = [-1] * len(pairs)
    for index, (_, position) in enumerate(pairs):
        rank = bisect_left(tails, position)
        previous[index] = last[rank - 1] if rank else -1
        tails[rank : rank + 1] = [position]
        last[rank : rank + 1] = [index]
    chain: list[tuple[int, int]] = []
    index = last[-1] if last else -1
    while index >= 0:
        chain.append(pairs[index])
        index = previous[index]
    return chain[::-1]


def _groups(old: str, spans: list[Span], context: int) -> Iterator[list[Span]]:
    """Spans whose context lines touch share a hunk."""
    group: list[Span] = []
    for span in spans:
        if group and old.count("\n", group[-1].end, span.start) > 2 * context:
            yield group
            group = []
        group.append(span)
    if group:
        yield group


def _hunk(old: str, new: str, group: list[Span], context: int) -> tuple[list[str], int, int]:
    start, end = _up(old, group[0].start, context), _down(old, group[-1].end, context)
    body: list[str] = []
    added = removed = kept = 0
    at = start
    for span in group:
        same = split_lines(old[at : span.start])
        minus, plus = split_lines(old[span.start : span.end]), split_lines(new[span.new_start : span.new_end])
        body += _marked(" ", same) + _marked("-", minus) + _marked("+", plus)
        kept, removed, added = kept + len(same), removed + len(minus), added + len(plus)
        at = span.end
    same = split_lines(old[at:end])
    body += _marked(" ", same)
    kept += len(same)
    new_start = group[0].new_start - (group[0].start - start)
    before = _range(line_number(old, start), kept + removed)
    after = _range(line_number(new, new_start), kept + added)
    return [f"@@ -{before} +{after} @@\n", *body], added, removed


def _range(first: int, count: int) -> str:
    """A range in the form of `diff -u`: an empty one names the line before it."""
    return str(first) if count == 1 else f"{first if count else first - 1},{count}"


def _up(text: str, position: int, lines: int) -> int:
    for _ in range(lines):
        if position == 0:
            break
        position = text.rfind("\n", 0, position - 1) + 1
    return position


def _down(text: str, position: int, lines: int) -> int:
    for _ in range(lines):
        position = text.find("\n", position) + 1
        if position == 0:
            return len(text)
    return position


def _marked(mark: str, lines: list[str]) -> list[str]:
    return [
        mark + line if line.endswith("\n") else f"{mark}{line}\n\\ No newline at end of file\n"
        for line in lines
    ]


def _size(lines: list[str]) -> int:
    return sum(map(len, lines))
