"""Passwords in the lines of a `.pgpass` file: host, port, database, user and password, colons between."""

import re
from typing import Final

from tools.redaction.assignments import opens_line
from tools.redaction.spans import Span
from tools.redaction.values import distinctive, is_secret

LINE: Final = rb":(?:[0-9]{2,5}|\*):[^\s:]+:[^\s:]+:(?:[^\s:\\]|\\[^nr\s])+(?:[\s]|\\[nr]|\z)"
"""All but the host. Nothing follows but the end of the line, be it an escaped one."""
_USUAL: Final = (b"5432", b"5433", b"6432", b"*")
"""Ports for which weak passwords count, too: other numbers may be those of lines."""
_HOST: Final = re.compile(rb"[\w./*@-]{1,255}$")
_WHOLE: Final = re.compile(rb"(?:(?:[^:\\\n]|\\.)+:){4}(?P<value>[^\n]+)")
_VALUE: Final = re.compile(rb":(?P<port>[^:]+):[^:]+:[^:]+:(?P<value>.+?)(?:[\s]|\\[nr])?$", re.DOTALL)


def password(data: bytes, at: int, stop: int) -> list[Span]:
    """The password of a line whose port begins at the colon at `at`, if it is one."""
    low = max(0, at - 400)
    low = data.rfind(b"\n", low, at) + 1 or low
    host = _HOST.search(data, low, at)
    found = _VALUE.match(data, at, stop)
    if host is None or found is None or not opens_line(before := data[low : host.start()]):
        return []
    start, end = found.span("value")
    if before.endswith((b'"', b"'")) and (quote := data.find(before[-1:], start, end)) >= 0:
        end = quote
    value = data[start:end]
    if not is_secret(value, plain=found["port"] in _USUAL, numeric=True):
        return []
    return [Span(start, end, "password", 4, distinctive(value))]


def passwords(data: bytes) -> list[bytes]:
    """Those in a file that is known to be a `.pgpass`."""
    lines = (_WHOLE.fullmatch(line.rstrip(b"\r")) for line in data.split(b"\n") if line[:1] != b"#")
    return [re.sub(rb"\\(.)", rb"\1", found["value"]) for found in lines if found]
