"""Private keys in text form: the body of a PEM block, line by line, however the lines are shown."""

import re
from dataclasses import dataclass
from typing import Final

from tools.redaction.spans import Span

BEGIN: Final = rb"-{4,5} ?BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)? ?-{4,5}"
_BEGIN: Final = re.compile(BEGIN)
_END: Final = re.compile(rb"-{4,5} ?END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}")
_INLINE: Final = re.compile(rb"(?:\\+[nr]|[\s\"'])*(?P<body>[A-Za-z0-9+/=](?:[A-Za-z0-9+/= ]|\\+[nr]|\\/)*)")
_LINE: Final = re.compile(
    rb"(?:^|[^A-Za-z0-9+/=])(?P<run>[A-Za-z0-9+/]*[A-Za-z0-9+/=]{4})(?:(?<==)|(?![A-Za-z0-9+/]))"
    rb"(?:\\+[nr])*[\"'`,;+) \\\t\r]*$"
)
_HEADER: Final = re.compile(
    rb"(?:^|[\s:|>+-])(?:Proc-Type|DEK-Info|Comment|Version|Subject|x-[a-z-]{1,40}): ?[^\n]*$"
)
_BLANK: Final = re.compile(rb"^[\s\d:|>+\"'\\-]*+(?:(?<=\\)[nr])?[\"'\s,+]*+$|^[^\s:]+[:-]\d+[:-]\s*$")
_RUNS: Final = re.compile(rb"(?:(?<=\\n)|(?<=\\r)|^)[A-Za-z0-9+/=]{16,}")
_BODY_LINES, _WHOLE_LINE, _TELLING = 1000, 40, 16


@dataclass(slots=True)
class Block:
    """A block that has begun: how many lines of its body and of its head were seen."""

    body: int = 0
    head: int = 0


def spans_from(data: bytes, at: int, end: int, block: Block) -> tuple[list[Span], int, Block | None]:
    """The lines of a body from `at` on: their places, where the block ended, and the block if it did not.

    Lines end with a line feed; `at` is the start of a line, or just behind the block's first line.
    """
    spans: list[Span] = []
    while at < end:
        stop = data.find(b"\n", at, end)
        stop = end if stop < 0 else stop
        closing = _END.search(data, at, stop)
        if closing is not None:
            spans += _inline(data, at, closing.start(), block)
            return spans, closing.end(), None
        spans_here, goes_on = _line(data, at, stop, block)
        spans += spans_here
        if not goes_on:
            return spans, at, None
        at = stop + 1
    return spans, min(at, end), block


def begun(data: bytes, at: int, end: int) -> tuple[list[Span], int, Block | None]:
    """As `spans_from`, for a block whose first line begins at `at`."""
    first = _BEGIN.match(data, at, end)
    assert first is not None
    stop = data.find(b"\n", at, end)
    stop = end if stop < 0 else stop
    block = Block()
    closing = _END.search(data, first.end(), stop)
    if closing is not None:
        return _inline(data, first.end(), closing.start(), block), closing.end(), None
    rest = data[first.end() : stop]
    spans = _inline(data, first.end(), stop, block) if len(rest) > 24 else []
    if spans:  # a body in one line that was cut before its end
        return spans, stop, None
    if stop == end:
        return [], end, block
    more, at, open_block = spans_from(data, stop + 1, end, block)
    return more, at, open_block


def _line(data: bytes, at: int, stop: int, block: Block) -> tuple[list[Span], bool]:
    line = data[at:stop]
    if _HEADER.search(line) or _BLANK.match(line):
        block.head += 1
        return [], block.head <= 12
    found = _LINE.search(line)
    enough = found is not None and len(found["run"]) >= (4 if block.body else _WHOLE_LINE)
    if found is None or not enough or block.body >= _BODY_LINES:
        return [], False
    block.body += 1
    start, end = found.span("run")
    return [Span(at + start, at + end, "private-key", 0, end - start >= _TELLING)], True


def _inline(data: bytes, at: int, stop: int, block: Block) -> list[Span]:
    """A body, or the end of one, that shares its line with the block's last line."""
    found = _INLINE.match(data, at, stop)
    if found is None:
        return []
    start, end = found.span("body")
    while data.endswith((b"\\n", b"\\r", b" ", b"\\"), start, end):
        end -= 2 if data.endswith((b"\\n", b"\\r"), start, end) else 1
    if end - start < (4 if block.body else 24):
        return []
    # The lines of a key in one line of JSON are known one by one: other texts hold them so.
    lines = [
        Span(start + one.start(), start + one.end(), "private-key", 0, True)
        for one in _RUNS.finditer(data[start:end])
    ]
    return [Span(start, end, "private-key", 0, end - start >= _TELLING), *lines]
