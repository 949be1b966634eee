"""Finds secrets in bytes: one pass of RE2 for where one may be, then a look at each such place.

No rule but that of private keys looks beyond its line. A text may therefore be scanned line by line, or all
at once, with the same result.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from tools.redaction import assignments, encoded, private_keys, tokens
from tools.redaction.engine import compiled
from tools.redaction.private_keys import Block
from tools.redaction.spans import Span


@cache
def _rule() -> Any:
    literal = [re.escape(prefix) for prefix in tokens.PREFIXES if prefix != b"SK"]
    rules = [
        private_keys.BEGIN,
        *literal,
        rb"SK[0-9a-f]",
        assignments.LOGIN,
        assignments.OPTION,
        assignments.NAMED,
        assignments.USER,
        assignments.URL,
        assignments.URL_TOKEN,
        assignments.BEARER,
    ]
    return compiled(b"|".join(rules))


@cache
def _runs() -> Any:
    return compiled(encoded.RUN)


def scan(
    data: bytes, block: Block | None = None, part: Callable[[bytes], bool] | None = None, depth: int = 0
) -> tuple[list[Span], Block | None]:
    """The places of secrets, unordered and overlapping, and the private key that has not ended yet.

    `block` is the one that had begun before. `part` says whether decoded base64 holds (a part of) a value
    that is known otherwise.
    """
    end, done = len(data), 0
    spans: list[Span] = []
    if block is not None:
        spans, done, block = private_keys.spans_from(data, 0, end, block)
    for match in _rule().finditer(data):
        at, stop = match.span()
        hit = data[at:stop]
        if hit.startswith(b"----") and b"BEGIN" in hit:
            if at >= done:
                more, done, block = private_keys.begun(data, at, end)
                spans += more
        else:
            spans += _looked_at(data, at, stop, hit, end)
    if depth == 0:
        for match in _runs().finditer(data):
            at, stop = match.span()
            if encoded.hides(data[at:stop], lambda text: _secret(text, part)):
                spans.append(Span(at, stop, "encoded", 6))
    return spans, block


def _secret(text: bytes, part: Callable[[bytes], bool] | None) -> bool:
    return bool(scan(text, depth=1)[0]) or (part is not None and part(text))


def _looked_at(data: bytes, at: int, stop: int, hit: bytes, end: int) -> list[Span]:
    if hit.startswith(b"SK"):
        return tokens.token(data, at, b"SK", end)
    if hit in _PREFIXES:
        return tokens.token(data, at, hit, end)
    if hit.startswith(b"://"):
        colon = data.find(b":", at + 3, stop)
        return assignments.url(data, at, stop) if colon > 0 else assignments.url_token(data, at, stop)
    last = hit[-1:]
    if last in b":=>" and not _is_user(hit):
        return assignments.assigned(data, at, stop, end)
    if hit[:6].lower() == b"bearer":
        return assignments.bearer(data, stop - 1, end) if tokens.starts_here(data, at) else []
    return assignments.option(data, stop, end)


_PREFIXES: Final = frozenset(tokens.PREFIXES)


def _is_user(hit: bytes) -> bool:
    return hit.lstrip(b" \t").startswith((b"-u", b"--user", b"--proxy-user"))
