"""Secrets whose name stands on an earlier line, or in another field, than their value.

XML text, the pairs of property lists and of Hadoop, block scalars of YAML, and `name`/`value` fields as
containers, CloudFormation and HAR files have them.
"""

import re
from dataclasses import dataclass
from typing import Final

from tools.redaction.assignments import CLOSED, NAME, UPPER_KEY, header, kind_of, value_at
from tools.redaction.spans import Span
from tools.redaction.values import distinctive, is_secret, looks_random, stands_in

_FIELD: Final = rb"\\*[\"']?[A-Za-z]{0,12}(?i:value)\\*[\"']?[ \t]*[:=]"
PAIR: Final = (
    rb"(?i:name|key)\\*[\"']?[ \t]*[:=][ \t]*\\*[\"']?[A-Za-z0-9_./-]*(?:"
    + NAME
    + rb"|"
    + UPPER_KEY
    + rb")"
    + CLOSED
    + rb"[ \t]*[,;]?[ \t]*(?:\r?\n|\\n|"
    + _FIELD
    + rb")"
)
"""A field that names a secret, and the end of its line or the field with the value."""
ENDED: Final = NAME + rb"</(?:[A-Za-z]+:)?(?i:key|name)>[ \t\r]*\n"
"""The end of an element that names a secret, and of its line."""

_LINES: Final = 32
_PATIENCE: Final = 3
"""Lines that may stand between a name and its value."""
_NUMBER: Final = re.compile(rb"[ \t]*(?:[^\s:]*[:-])??(?P<number>[0-9]{1,7})(?:[:|-]|[ \t]*\t|: )")
_SCALAR: Final = re.compile(rb"[ \t]*[|>][-+0-9]{0,2}[ \t\r]*(?:#[^\n]{0,200})?$")
_OBJECT: Final = re.compile(rb"[ \t]*\{[ \t\r]*$")
_TEXT: Final = re.compile(rb"[ \t\r]*$")
_VALUE: Final = re.compile(rb"[ \t+,{-]*" + _FIELD)
_NAMES: Final = re.compile(rb"(?i)[ \t+,{-]*[\"']?[A-Za-z]{0,12}(?:name|key)[\"']?[ \t]*[:=]")
_TAG: Final = re.compile(rb"[ \t+-]*(?:<(?:string|value)>)?(?:<!\[CDATA\[)?[ \t]*")
_CLOSING_NAME: Final = re.compile(rb"<(?:[A-Za-z]+:)?(?:key|name)>[\w.:-]{0,120}$", re.IGNORECASE)
_OPENING: Final = re.compile(rb"<(?:[A-Za-z_][\w.-]{0,80}:)?[\w.-]{0,80}$")
_TEXT_RUN: Final = re.compile(rb"[^\s<>]+")
_RUN: Final = re.compile(rb"\S+")


@dataclass(slots=True)
class Awaited:
    """A name that was met, whose value is to come. `number` is that of the last line shown; -1 for none."""

    form: str
    """`field`, `element` or `scalar`."""
    name: bytes
    number: int = -1
    indent: int = -1
    """Of a scalar's key."""
    lines: int = 0


def begun(data: bytes, at: int, stop: int) -> tuple[Awaited, int] | None:
    """What the hit from `at` to `stop` lets expect of the next lines, and where these begin."""
    hit = data[at:stop]
    if hit.endswith(b"\n"):
        return _of(data, at, "field", hit.rstrip(b"\r\n \t,;\"'")), stop
    last = hit[-1:]
    if last not in (b">", b":"):
        return None
    feed = data.find(b"\n", stop, stop + 256)
    if feed < 0:
        return None
    if last == b":":
        if _OBJECT.match(data, stop, feed):
            return _of(data, at, "field", hit), feed + 1
        return (_of(data, at, "scalar", hit), feed + 1) if _SCALAR.match(data, stop, feed) else None
    if not _TEXT.match(data, stop, feed) or hit.endswith(b"=>"):
        return None
    tag = _OPENING.search(data, max(0, at - 160), at)
    if tag is None or data.endswith(b"include ", 0, tag.start()):
        return None
    return _of(data, at, "element", hit), feed + 1


def named(data: bytes, at: int, end: int) -> tuple[Awaited, int] | None:
    """As `begun`, for the end of an element that names (`<key>password</key>`), which ends its line."""
    feed = data.find(b"\n", at, min(end, at + 400))
    hit = data[at : feed if feed >= 0 else at].rstrip()
    text, closing, _ = hit.rpartition(b"</")
    if not closing or not _CLOSING_NAME.search(data[max(0, at - 160) : at] + text):
        return None
    return _of(data, at, "element", text), feed + 1


def _of(data: bytes, at: int, form: str, name: bytes) -> Awaited:
    low = max(0, at - 400)
    line = data.rfind(b"\n", low, at) + 1 or low
    found = _NUMBER.match(data, line, at)
    begin = found.end() if found else line
    rest = data[begin:at]
    indent = len(rest) - len(rest.lstrip(b" +-"))
    return Awaited(
        form, name.rstrip(b"\"': \t\\>").lower()[-48:], int(found["number"]) if found else -1, indent
    )


def on_line(data: bytes, at: int, stop: int, end: int) -> tuple[list[Span], int]:
    """The value of a field behind the one that names it, from `stop` on; `at` is where the pair begins."""
    name = data[at:stop]
    cut = max(name.lower().rfind(b"value"), 0)
    bare = re.sub(rb"[\\\"', \t;]*[A-Za-z]*$", b"", name[:cut])
    return _field(data, stop, end, bare)


def _field(data: bytes, at: int, end: int, bare: bytes) -> tuple[list[Span], int]:
    lower = bare.lower()
    if lower.endswith((b"authorization", b"cookie")):
        return header(data, at, end, cookie=lower.endswith(b"cookie"))
    start, stop = value_at(data, at, end, b'":')
    return _secret(data, start, stop, lower), max(stop, at)


def _secret(data: bytes, start: int, stop: int, name: bytes) -> list[Span]:
    value = data[start:stop]
    if not is_secret(value, plain=False):
        return []
    return [Span(start, stop, kind_of(name[-48:]), 4, distinctive(value))]


def spans_from(data: bytes, at: int, end: int, awaited: Awaited) -> tuple[list[Span], int, Awaited | None]:
    """The value in the lines from `at` on, where looking ended, and what is awaited still."""
    spans: list[Span] = []
    while at < end:
        stop = data.find(b"\n", at, end)
        stop = end if stop < 0 else stop
        begin = _content(data, at, stop, awaited)
        awaited.lines += 1
        if begin < 0 or awaited.lines > _LINES or data.find(b"BEGIN ", begin, stop) >= 0:
            return spans, at, None
        if awaited.form == "scalar":
            run, goes_on = _of_scalar(data, begin, stop, awaited)
        elif awaited.form == "field":
            run, goes_on = _of_field(data, begin, stop, awaited)
        else:
            run, goes_on = _of_element(data, begin, stop, awaited)
        spans += run
        if not goes_on:
            return spans, at, None
        at = stop + 1
    return spans, min(at, end), awaited


def _content(data: bytes, at: int, stop: int, awaited: Awaited) -> int:
    if awaited.number < 0:
        return at
    found = _NUMBER.match(data, at, stop)
    if found is None or int(found["number"]) != awaited.number + 1:
        return -1
    awaited.number += 1
    return found.end()


def _of_field(data: bytes, at: int, stop: int, awaited: Awaited) -> tuple[list[Span], bool]:
    found = _VALUE.match(data, at, stop)
    if found is not None:
        return _field(data, found.end(), stop, awaited.name)[0], False
    return [], awaited.lines < _PATIENCE and not _NAMES.match(data, at, stop)


def _of_element(data: bytes, at: int, stop: int, awaited: Awaited) -> tuple[list[Span], bool]:
    found = _TAG.match(data, at, stop)
    begin = found.end() if found else at
    run = _TEXT_RUN.match(data, begin, stop)
    if run is None:
        return [], awaited.lines < _PATIENCE and not data.startswith(b"<", begin)
    start, close = run.span()
    if data.endswith(b"]]", start, close):
        close -= 2
    rest = data[close:stop].strip()
    if rest and not rest.startswith((b"</", b"]]>")):
        return [], False  # prose
    value = data[start:close]
    secret = is_secret(value, plain=True, numeric=True)
    return ([Span(start, close, kind_of(awaited.name), 4, distinctive(value))] if secret else []), False


def _of_scalar(data: bytes, at: int, stop: int, awaited: Awaited) -> tuple[list[Span], bool]:
    line = data[at:stop]
    if not line.strip():
        return [], True
    if len(line) - len(line.lstrip(b" +-")) <= awaited.indent:
        return [], False
    run = _RUN.search(line)
    assert run is not None
    if line[run.end() :].strip():
        return [], True  # prose, or settings that have their own rules
    value = run[0]
    if b":" in value or b"=" in value.rstrip(b"="):
        secret = looks_random(value) and not stands_in(value) and b": " not in value
        secret = secret and not re.match(rb"[A-Za-z_][\w.-]*[:=]", value)
    else:
        secret = is_secret(value, plain=True, numeric=True)
    start = at + run.start()
    return (
        [Span(start, start + len(value), kind_of(awaited.name), 4, distinctive(value))] if secret else []
    ), True
