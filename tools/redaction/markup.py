"""Secrets in XML and HTML: elements and attributes that are named like one."""

import re
from typing import Final

from tools.redaction.assignments import NAME, kind_of, value_at
from tools.redaction.spans import Span
from tools.redaction.values import LONGEST, distinctive, is_secret

_QUOTE: Final = rb"\\*[\"']"
ELEMENT: Final = NAME + rb">"
"""The end of a tag, opening or closing."""
PROPERTY: Final = NAME + _QUOTE + rb"[ \t]+(?i:value)[ \t]*="
"""An attribute that names, and the one with the value behind it."""
ENTRY: Final = NAME + rb"(?:" + _QUOTE + rb"|</[A-Za-z]{1,16}>[ \t]*<[A-Za-z]{1,16})>"
"""An attribute that names, or an element, and the text that follows."""

_OPENING: Final = re.compile(rb"</?(?:[A-Za-z_][\w.-]{0,80}:)?[\w.-]{0,80}$")
_BARE: Final = re.compile(rb"[ \t]*[^\s\"'`\\<]+")
_BLANKS: Final = re.compile(rb"(?:\s|\\+[nrt])*+")
_BLANK_END: Final = (b"\\n", b"\\r", b"\\t")
_STRINGS: Final = re.compile(rb"(?<!\\)\"[ \t]*[,:\]}]")
"""Where a string of JSON ends."""
_CDATA: Final = b"<![CDATA["


def markup(data: bytes, at: int, stop: int, end: int) -> tuple[list[Span], int]:
    """The secret at a tag or an attribute between `at` and `stop`, and up to where that was read."""
    hit = data[at:stop]
    kind = kind_of(hit.lower())
    if hit.endswith(b"="):
        start, close = value_at(data, stop, end)
        return _span(data, start, close, kind, plain=True), max(close, stop)
    if hit.endswith((b'">', b"'>")) or b"<" in hit:
        start, close = _text(data, stop, end)
        return _span(data, start, close, kind, plain=b"<" in hit), max(close, stop)
    tag = _OPENING.search(data, max(0, at - 160), at)
    if tag is None:
        return [], stop
    if not tag[0].startswith(b"</"):
        start, close = _text(data, stop, end)
        return _span(data, start, close, kind, plain=True), max(close, stop)
    # A closing tag: what stands before it, whatever attributes the opening one has.
    low = max(tag.start() - LONGEST - 32, 0)
    low = data.rfind(b"\n", low, tag.start()) + 1 or low
    close = tag.start()
    if data.endswith(b"]]>", low, close):
        opened = data.rfind(_CDATA, low, close)
        start, close = opened + len(_CDATA), close - 3
    else:
        opened = data.rfind(b">", low, close)
        start = opened + 1
    read = stop + tag.start() - (opened if opened >= 0 else low)
    return (_span(data, start, close, kind, plain=True) if opened >= 0 else []), read


def _text(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Where the text of an element lies that begins at `at`. On one line."""
    end = min(end, at + LONGEST + 32)
    line_end = data.find(b"\n", at, end)
    end = end if line_end < 0 else line_end
    if data.startswith(_CDATA, at, end):
        at += len(_CDATA)
        close = data.find(b"]]>", at, end)
    else:
        close = data.find(b"<", at, end)
    if close >= 0 and (data.startswith(b"]]>", close) or data.startswith(b"</", close)):
        return at, close
    bare = _BARE.match(data, at, end if close < 0 else close)  # cut, or the end of a string
    return (at, bare.end()) if bare else (at, at)


def _span(data: bytes, start: int, close: int, kind: str, *, plain: bool) -> list[Span]:
    if (close - start) > LONGEST + 64 or (blank := _BLANKS.match(data, start, close)) is None:
        return []
    start = blank.end()
    value = data[start : max(start, close)].rstrip()
    while value.endswith(_BLANK_END):
        value = value[:-2].rstrip().rstrip(b"\\")
    if (
        b"<" in value
        or b">" in value
        or _STRINGS.search(value)
        or not is_secret(value, plain=plain, numeric=True)
    ):
        return []
    return [Span(start, start + len(value), kind, 4, distinctive(value))]
