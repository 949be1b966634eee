"""Values in quotes that go on over several lines, as `.env` files hold them: line by line, however shown."""

import re
from dataclasses import dataclass
from typing import Final

from tools.redaction.spans import Span
from tools.redaction.values import distinctive, is_secret, looks_random, stands_in

_LINES: Final = 32
_SHOWN: Final = re.compile(rb"[ \t]*(?:[^\s:]*[:-])??(?P<number>[0-9]{1,7})(?:[:|-]|[ \t]*\t|: )|[+ -]")
"""What a tool writes before a line: its number, with or without a path, or the sign of a change."""
_NEXT: Final = re.compile(
    rb"[ \t]*(?:export[ \t]+)?[A-Z_][A-Z0-9_]{2,}=(?:[^=\s\"']|[\"'][^\"'\s])|-{4,5} ?BEGIN "
)
"""What no value goes on with: another assignment (the quote was never closed), or what has its own rule."""
_RUN: Final = re.compile(rb"[^\s]+")


@dataclass(slots=True)
class Quoted:
    """A value that has begun: what ends it, its kind, and whether weak parts of it count.

    `shown`: a tool writes something before each line. `number` is that of the last line; -1 for none.
    """

    quote: bytes
    kind: str
    weak: bool
    shown: bool = False
    number: int = -1
    lines: int = 0


def begun(line: bytes, quote: bytes, kind: str, *, weak: bool) -> Quoted:
    """A value whose opening quote is on a line before whose name `line` stands."""
    found = _SHOWN.match(line)
    number = int(found["number"]) if found and found["number"] else -1
    return Quoted(quote, kind, weak, found is not None, number)


def spans_from(data: bytes, at: int, end: int, value: Quoted) -> tuple[list[Span], int, Quoted | None]:
    """The parts of a value from the line at `at` on, where it ended, and the value if it did not."""
    spans: list[Span] = []
    while at < end:
        stop = data.find(b"\n", at, end)
        stop = end if stop < 0 else stop
        begin = _content(data, at, stop, value)
        if begin < 0 or value.lines >= _LINES or _NEXT.match(data, begin, stop):
            return spans, at, None
        value.lines += 1
        close = closing(data, begin, stop, value.quote)
        for run in _RUN.finditer(data, begin, stop if close < 0 else close):
            part = run[0].rstrip(b"\\") if close >= 0 else run[0]
            if _counts(part, value):
                spans.append(Span(run.start(), run.start() + len(part), value.kind, 4, distinctive(part)))
        if close >= 0:
            return spans, close, None
        at = stop + 1
    return spans, min(at, end), value


def _content(data: bytes, at: int, stop: int, value: Quoted) -> int:
    """Where a line begins behind what a tool wrote before it; -1 where it does not follow the last one."""
    if not value.shown:
        return at
    found = _SHOWN.match(data, at, stop)
    if found is None or (found["number"] is None) != (value.number < 0):
        return -1
    if found["number"]:
        if int(found["number"]) != value.number + 1:
            return -1
        value.number += 1
    return found.end()


def closing(data: bytes, at: int, stop: int, quote: bytes) -> int:
    """Where the closing quote stands, one that is not escaped; -1 where none does."""
    while (found := data.find(quote, at, stop)) >= 0:
        slashes = found - at - len(data[at:found].rstrip(b"\\"))
        if slashes % 2 == 0:
            return found
        at = found + 1
    return -1


def _counts(part: bytes, value: Quoted) -> bool:
    if value.weak:
        return is_secret(part, plain=True, numeric=True)
    return len(part) >= 16 and looks_random(part) and not stands_in(part)
