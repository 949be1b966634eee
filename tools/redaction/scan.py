"""Finds secrets in bytes: one pass of RE2 for where one may be, then a look at each such place.

No rule but those of private keys, of values in quotes and of names whose value is yet to come looks beyond
its line, and these only onwards. A text may therefore be scanned line by line, or all at once, with the same
result.

Where each of many places would have much behind it looked at, looking ends: what remains of that line is
taken for one secret. Ordinary text does not come near that; a text that is made to be slow gains nothing.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from tools.redaction import (
    assignments,
    awaited,
    commands,
    encoded,
    markup,
    pgpass,
    private_keys,
    quoted,
    tokens,
)
from tools.redaction.awaited import Awaited
from tools.redaction.engine import compiled
from tools.redaction.private_keys import Block
from tools.redaction.quoted import Quoted
from tools.redaction.spans import Span

Open = Block | Quoted | Awaited
"""What may go on in the lines that follow."""


@cache
def _rule() -> Any:
    literal = [re.escape(prefix) for prefix in tokens.PREFIXES if prefix != b"SK"]
    rules = [
        private_keys.BEGIN,
        *literal,
        rb"SK[0-9a-f]",
        assignments.LOGIN,
        assignments.OPTION,
        markup.PROPERTY,
        markup.ENTRY,
        markup.ELEMENT,
        awaited.PAIR,
        awaited.ENDED,
        assignments.NAMED,
        assignments.USER,
        assignments.URL,
        assignments.URL_TOKEN,
        assignments.BEARER,
    ]
    return compiled(b"|".join(rules))


@cache
def _lines() -> Any:
    return compiled(pgpass.LINE)


@cache
def _commands() -> Any:
    return compiled(commands.LINE)


@cache
def _runs() -> Any:
    return compiled(encoded.RUN)


def scan(
    data: bytes, block: Open | None = None, part: Callable[[bytes], bool] | None = None, depth: int = 0
) -> tuple[list[Span], Open | None]:
    """The places of secrets, unordered and overlapping, and the key or quoted value that has not ended yet.

    `block` is the one that had begun before. `part` says whether decoded base64 holds (a part of) a value
    that is known otherwise.
    """
    end, done, looks = len(data), 0, _Looks(data)
    spans: list[Span] = []
    if isinstance(block, Quoted):
        spans, done, block = quoted.spans_from(data, 0, end, block)
    elif isinstance(block, Awaited):
        spans, done, block = awaited.spans_from(data, 0, end, block)
    elif block is not None:
        spans, done, block = private_keys.spans_from(data, 0, end, block)
    for match in _rule().finditer(data):
        at, stop = match.span()
        hit = data[at:stop]
        if hit.startswith(b"----") and b"BEGIN" in hit:
            if at >= done:
                more, done, block = private_keys.begun(data, at, end)
                spans += more
        elif looks.may(at) and not looks.seen(at, hit):
            found, read = _looked_at(data, at, stop, hit, end)
            spans += found
            looks.cost(at, hit, found, read)
            if hit.endswith(b"=") and at >= done and (value := assignments.continued(data, at, stop)):
                more, done, block = quoted.spans_from(data, data.find(b"\n", stop) + 1, end, value)
                spans += more
            elif at >= done and (expected := _expected(data, at, stop, hit, end)):
                more, done, block = awaited.spans_from(data, expected[1], end, expected[0])
                spans += more
    for match in _commands().finditer(data):
        spans += commands.password(data, match.start(), match.end(), end)
    for match in _lines().finditer(data):
        spans += pgpass.password(data, *match.span())
    if depth == 0:
        for match in _runs().finditer(data):
            at, stop = match.span()
            if encoded.hides(data[at:stop], lambda text: _secret(text, part)):
                spans.append(Span(at, stop, "encoded", 6))
    return spans + looks.unseen, block


class _Looks:
    """What the places of each line cost, in bytes that were looked at."""

    def __init__(self, data: bytes) -> None:
        self.unseen: list[Span] = []
        """The rests of lines that are not looked at."""
        self._data = data
        self._line = 0
        """The end of the line that is being looked at."""
        self._left = 0
        self._token = self._cookies = 0
        """Where the last token and the last header of cookies end: they were looked at whole."""

    def may(self, at: int) -> bool:
        """Whether to look at a place. Places come in order."""
        if at >= self._line:
            start = self._data.rfind(b"\n", self._line, at) + 1 or self._line
            stop = self._data.find(b"\n", at)
            self._line = len(self._data) if stop < 0 else stop
            self._left = FREE + TIMES * (self._line - start)
        if self._left >= 0:
            return True
        if self._left > OUT:
            self._left = OUT
            self.unseen.append(Span(at, self._line, "unread", 7))
        return False

    def seen(self, at: int, hit: bytes) -> bool:
        """Whether a place was looked at with what is around it."""
        return (at < self._token and hit in _PREFIXES) or (at < self._cookies and self._is_cookie(at, hit))

    def cost(self, at: int, hit: bytes, found: list[Span], read: int) -> None:
        """A place was looked at, up to `read`."""
        self._left -= read - at
        if hit in _PREFIXES:
            self._token = found[0].end if found else self._token
        elif self._is_cookie(at, hit):
            self._cookies = read

    def _is_cookie(self, at: int, hit: bytes) -> bool:
        return hit[0] in b"cC" and hit[:6].lower() == b"cookie" and self._data[at - 1 : at] != b"_"


def _secret(text: bytes, part: Callable[[bytes], bool] | None) -> bool:
    return bool(scan(text, depth=1)[0]) or (part is not None and part(text))


def _expected(data: bytes, at: int, stop: int, hit: bytes, end: int) -> tuple[Awaited, int] | None:
    """The name at a place whose value is on a later line."""
    if hit[-1:] not in b">:\n" or (hit[-1:] != b"\n" and data[stop : stop + 1] not in _ENDS):
        return None
    return awaited.named(data, at, end) if b"</" in hit else awaited.begun(data, at, stop)


def _looked_at(data: bytes, at: int, stop: int, hit: bytes, end: int) -> tuple[list[Span], int]:
    """What is found at a place, and up to where that was read."""
    if hit.startswith(b"SK"):
        return tokens.token(data, at, b"SK", end)
    if hit in _PREFIXES:
        return tokens.token(data, at, hit, end)
    if hit.startswith(b"://"):
        colon = data.find(b":", at + 3, stop)
        return (assignments.url if colon > 0 else assignments.url_token)(data, at, stop), stop
    last = hit[-1:]
    if last == b"\n" or hit.endswith(b"\\n"):
        return [], stop
    if _PAIR.match(hit):
        return awaited.on_line(data, at, stop, end)
    if (last == b">" and hit[-2:] != b"=>") or _PROPERTY.search(hit):
        return markup.markup(data, at, stop, end)
    if last in b":=>" and not _is_user(hit):
        return assignments.assigned(data, at, stop, end)
    if hit[:6].lower() != b"bearer":
        return assignments.option(data, stop, end)
    return assignments.bearer(data, stop - 1, end) if tokens.starts_here(data, at) else ([], stop)


FREE: Final = 1024
"""Bytes of looks that every line has free."""
TIMES: Final = 6
"""How often the bytes of a line may be looked at besides."""
OUT: Final = -(1 << 40)

_PROPERTY: Final = re.compile(rb"[\"'][ \t]+(?i:value)[ \t]*=$")
_PAIR: Final = re.compile(rb"(?i)(?:name|key)[\\\"' \t]*[:=].*value[\\\"']*[ \t]*[:=]$", re.DOTALL)
_ENDS: Final = frozenset((b"\n", b"\r", b" ", b"\t", b"|", b">", b"{"))
"""What stands behind a name whose value is on a later line."""
_PREFIXES: Final = frozenset(tokens.PREFIXES)


def _is_user(hit: bytes) -> bool:
    return hit.lstrip(b" \t").startswith((b"-u", b"--user", b"--proxy-user"))
