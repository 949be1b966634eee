"""Secrets that their name gives away: assignments, headers, URLs and options with a credential."""

import base64
import binascii
import re
import string
from functools import cache
from typing import Any, Final

from tools.redaction.engine import compiled
from tools.redaction.quoted import Quoted, begun, closing
from tools.redaction.spans import Span
from tools.redaction.values import (
    LONGEST,
    MARK,
    SHORTEST,
    classes,
    digits_in,
    distinctive,
    entropy,
    is_secret,
    looks_random,
    stands_in,
)

NAME: Final = (
    rb"(?i:passw(?:or)?d|passphrase|passwort|pwd|secret|token|api[_.-]?key|credentials?|authorization|cookie|"
    rb"[_-]pass|[_-]auth|_authtoken|"
    rb"(?:secret|private|access|account|encryption|signing|master|auth|service|shared|sharedaccess|license)"
    rb"[_.-]?key(?:[_-]?id)?)"
)
UPPER_KEY: Final = rb"[A-Z0-9]_KEY"
_QUALIFIED: Final = (
    rb"(?i:[_.-]?(?:base|salt|pepper|seed)|[_.-](?:value|base64|b64|hash|hex|string|text|raw|plain|plaintext|old|new|"
    rb"current|previous|prod|production|dev|development|staging|live|primary|secondary|main|default))"
)
"""What may stand behind the word that makes a name a secret's."""
CLOSED: Final = rb"(?:" + _QUALIFIED + rb"){0,2}(?:[_-]?[0-9]{1,2})?(?:\\*[\"'`])?\]?"
NAMED: Final = rb"(?:" + NAME + rb"|" + UPPER_KEY + rb")" + CLOSED + rb"[ \t]*(?:=>|:=|===?|=|:)"
"""A name that ends like a secret's, with what assigns."""
OPTION: Final = rb"--?[a-z0-9-]*(?i:passw(?:or)?d|passphrase|secret|token|api[_-]?key)[ \t]+"
LOGIN: Final = rb"login[ \t]+[^ \t\n]+[ \t]+password[ \t]+"
USER: Final = rb"(?:[ \t]-u|--user|--proxy-user)[ \t=][ \t]*[\"']?[A-Za-z0-9_.@-]+:"
URL: Final = rb"://[^\s/@:\"'<>`]*:[^\s/@\"'<>`]+@"
URL_TOKEN: Final = rb"://[A-Za-z0-9_.-]+@"
BEARER: Final = rb"(?i:bearer)[ \t]+[A-Za-z0-9]"

_ANNOTATED: Final = re.compile(rb"[ \t]{0,16}+[A-Za-z_][\w\[\], |.]{0,60}?[ \t]{0,16}+=[ \t]*(?!=)")
_OPENING: Final = re.compile(rb"[ \t]*(?:[bBrRuUfF]{1,2}(?=[\"']))?(?P<quote>\\*(?:\"\"\"|'''|[\"'`]))?")
_BARE: Final = re.compile(rb"[^\s\"'`,;&<>(){}|\\]+")
_REST: Final = re.compile(rb"[^\s\"'`\\]+")
_SCHEME: Final = re.compile(rb"(?i:bearer|basic|token|apikey|bot|digest|key)[ \t]+")
_OPENERS: Final = (b":", b">", b"|", b"+", b"-")
_COMMANDS: Final = (b"export", b"set", b"ENV", b"declare -x")
_NAME_CHARACTERS: Final = string.ascii_letters.encode() + string.digits.encode() + b"_.-"
_TAIL: Final = 48
"""Bytes at the end of a name that tell its kind."""
_PAIR: Final = re.compile(rb"(?P<name>[^\s=;,\"']+)=(?P<value>[^\s;,\"']+)")
_TOKEN: Final = re.compile(rb"[A-Za-z0-9._~+/|=-]+")
_TAG_END: Final = re.compile(rb"\\*[\"'][ \t]*/?>")
_PORT: Final = re.compile(rb"(?:[0-9]{0,5}|port)[?#]", re.IGNORECASE)
"""A port and the beginning of what a browser takes for a query."""
_NOT_SECRET: Final = re.compile(
    rb"(?i:max|min|num|total|count|input|output|prompt|completion|csrf_?cookie|next|continuation|page|pad|eos|bos|"
    rb"unk|sep|cls|mask|start|end|stop|special|public|session_?cookie|invalid|expected)[_.-]?(?i:token|cookie)s?$"
)
_QUALIFIERS: Final = re.compile(rb"(?:" + _QUALIFIED + rb")+$")
_STRONG_KEY: Final = re.compile(
    rb"(?:secret|private|access|account|encryption|signing|master|auth|api|shared|sharedaccess|service|license)"
    rb"[_.-]?key(?:[_-]?id)?$"
)
"""Names of keys, in lower case, that are hardly ever anything else; other keys open maps and sort tables."""


def assigned(data: bytes, at: int, sep: int, end: int) -> tuple[list[Span], int]:
    """The secret that a name ending before `sep` is given, if it is one. `at` is where the name was met.

    This and the others also say up to where they looked at what they read byte by byte.
    """
    if data.startswith(MARK, at - 1):
        return [], sep
    line, begin, lower, constant = _name(data, at, sep)
    name = data[begin:sep]
    if lower.endswith((b"authorization", b"cookie")) and not lower.endswith(b"_cookie"):
        return header(data, sep, end, cookie=lower.endswith(b"cookie"))
    start, stop = value_at(data, sep, end, name)
    lower = _QUALIFIERS.sub(b"", lower)
    if stop - start < SHORTEST or _NOT_SECRET.search(lower):
        return [], sep
    scheme = _SCHEME.match(data, start, stop)
    if scheme is not None and scheme.end() < stop:
        start = scheme.end()
    value = data[start:stop]
    tight = name.endswith(b"=") and not name.endswith((b"==", b" =", b"\t="))
    if _is_weak_key(lower):
        found = len(value) >= 16 and looks_random(value) and not stands_in(value)
    else:
        before = data[line:begin]
        plain = tight and ((constant and opens_line(before)) or _is_attribute(data, before, sep, stop))
        found = is_secret(value, plain=plain, numeric=b"token" not in lower)
    spans = [Span(start, stop, kind_of(lower), 4, distinctive(value))] if found else []
    return spans, start if b" " in value else stop


def _name(data: bytes, at: int, sep: int) -> tuple[int, int, bytes, bool]:
    """Where a line and the name in it begin, the name's end in lower case, and whether it is upper case."""
    line = data.rfind(b"\n", max(0, at - 400), at) + 1 or max(0, at - 400)
    begin = line + len(data[line:at].rstrip(_NAME_CHARACTERS))
    bare = data[begin:sep].rstrip(b"\"'`:=>] \t\\")
    lower = bare.lower()
    return line, begin, lower[-_TAIL:], bare[:1].isalpha() and lower.upper() == bare


def _is_weak_key(lower: bytes) -> bool:
    return lower.endswith((b"_key", b"key_id")) and not _STRONG_KEY.search(lower)


def _is_attribute(data: bytes, before: bytes, at: int, stop: int) -> bool:
    """Whether a value in quotes is that of an attribute of a tag, whose quote opens at `at`."""
    if data[at : at + 1] not in (b'"', b"'", b"\\"):
        return False
    opened = before.rfind(b"<")
    if opened > before.rfind(b">") and before[opened + 1 : opened + 2].isalpha() and before[-1:].isspace():
        return True
    return not before.strip() and _TAG_END.match(data, stop) is not None


def continued(data: bytes, at: int, sep: int) -> Quoted | None:
    """A value of configuration (`NAME="…`) whose closing quote is not on its line, if it may be secret."""
    quote = data[sep : sep + 1]
    if quote not in (b'"', b"'") or data[sep - 1 : sep] != b"=" or data[sep - 2 : sep - 1] in b"=: \t":
        return None
    if data.startswith(quote * 3, sep):
        quote *= 3
    begin = sep + len(quote)
    end = data.find(b"\n", begin)
    if end < 0 or data.startswith(b"-----", begin) or closing(data, begin, end, quote) >= 0:
        return None
    line, start, lower, constant = _name(data, at, sep)
    lower = _QUALIFIERS.sub(b"", lower)
    before = data[line:start]
    if not constant or not opens_line(before) or _NOT_SECRET.search(lower):
        return None
    return begun(before, quote, kind_of(lower), weak=not _is_weak_key(lower))


def opens_line(before: bytes) -> bool:
    """Whether a line, or what a tool wrote before it, has nothing but a command in front of a name."""
    before = before.rstrip(b"\"'")
    for word in (b"", *_COMMANDS):
        rest = before.rstrip(b" \t")
        if word and (rest == before or not rest.endswith(word)):
            continue
        start = rest[: len(rest) - len(word)]
        rest = start.rstrip(b" \t") if word else rest
        blank = start[len(rest) :] if word else before[len(rest) :]
        if not rest or rest.endswith(_OPENERS) or b"\t" in blank:
            return True
    return False


def kind_of(name: bytes) -> str:
    """What a placeholder calls the value of something of this name."""
    for word, kind in (
        (b"pass", "password"),
        (b"pwd", "password"),
        (b"token", "token"),
        (b"key", "key"),
        (b"cred", "credential"),
        (b"auth", "credential"),
    ):
        if word in name:
            return kind
    return "secret"


def value_at(data: bytes, at: int, end: int, name: bytes = b"") -> tuple[int, int]:
    """Where a value lies that begins at or behind `at`: in quotes, escaped quotes, or bare. On one line."""
    end = min(end, at + LONGEST + 128)
    line_end = data.find(b"\n", at, end)
    end = end if line_end < 0 else line_end
    if name.endswith(b":") and (annotated := _ANNOTATED.match(data, at, end)):
        at = annotated.end()
    opening = _OPENING.match(data, at, end)
    assert opening is not None
    quote, at = opening["quote"], opening.end()
    if quote is None:
        tight = name.endswith(b"=")
        upper = name[:1].isupper() and name.upper() == name
        # Behind a name in quotes stands a number, a word or code.
        named = name.rstrip(b":= \t>").endswith((b'"', b"'"))
        rule = _REST if (name.endswith(b":") and not named) or (tight and upper) else _BARE
        found = rule.match(data, at, end)
        stop = found.end() if found else at
        while stop > at and data[stop - 1 : stop] in b",;)]}\\":
            stop -= 1
        if rule is _REST and (cut := data.find(b"&", at, stop)) > 0 and b"=" in data[cut:stop]:
            stop = cut  # one of several parameters
        return at, stop
    stop = at
    while True:
        stop = data.find(quote, stop, end)
        if stop < 0:
            return at, _cut(data, at, end)
        if len(quote) == 1 or quote[:1] != b"\\":
            slashes = stop - len(data[at:stop].rstrip(b"\\")) - at
            if slashes % 2:
                stop += 1
                continue
        return at, stop


def _cut(data: bytes, at: int, end: int) -> int:
    """The end of a value whose closing quote is not on its line."""
    found = _REST.match(data, at, end)
    return found.end() if found else at


def header(data: bytes, at: int, end: int, *, cookie: bool) -> tuple[list[Span], int]:
    """Credentials in the value of an `Authorization` or `Cookie` header."""
    line_end = data.find(b"\n", at, end)
    end = min(end if line_end < 0 else line_end, at + 8192)
    opening = _OPENING.match(data, at, end)
    assert opening is not None
    begin = opening.end()
    stop = end
    for quote in (b'"', b"'", b"`"):
        if (found := data.find(quote, begin, stop)) >= 0:
            stop = found
    if cookie:
        pairs = _PAIR.finditer(data, begin, stop)
        return [
            Span(*pair.span("value"), "cookie", 3, True)
            for pair in pairs
            if looks_random(pair["value"]) and not stands_in(pair["value"])
        ], stop
    scheme = _SCHEME.match(data, begin, stop)
    if scheme is not None:
        begin = scheme.end()
    found = _TOKEN.match(data, begin, stop)
    if found is None or len(found[0]) < 8:
        return [], begin
    value = found[0]
    basic = scheme is not None and scheme[0].lower().startswith(b"basic")
    if stands_in(value) or not (_credential(value) or (basic and _user_and_password(value))):
        return [], found.end()
    return [Span(*found.span(), "authorization", 3, distinctive(value))], found.end()


def _credential(value: bytes) -> bool:
    """Where a credential is announced, less is asked of it."""
    return looks_random(value) or (
        len(value) >= 16 and digits_in(value) > 0 and classes(value) >= 2 and entropy(value) >= 3.3
    )


def _user_and_password(value: bytes) -> bool:
    try:
        decoded = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return False
    user, colon, password = decoded.partition(b":")
    return (
        bool(colon)
        and decoded.isascii()
        and password != user
        and not stands_in(password)
        and len(password) >= 6
    )


def bearer(data: bytes, at: int, end: int) -> tuple[list[Span], int]:
    """A bearer token without its header's name. `at` is the token's first character."""
    found = _TOKEN.match(data, at, min(end, at + 8192))
    if found is None or len(found[0]) < 16:
        return [], at
    secret = _credential(found[0]) and not stands_in(found[0])
    return [Span(*found.span(), "authorization", 3, True)] if secret else [], found.end()


def option(data: bytes, at: int, end: int) -> tuple[list[Span], int]:
    """The value of a command line option, of a `.netrc` or of `user:password`. It begins at `at`."""
    start, stop = value_at(data, at, end)
    value = data[start:stop]
    if value.startswith(b"-") or not is_secret(value):
        return [], start if b" " in value else stop
    return [Span(start, stop, "password", 4, distinctive(value))], stop


def url(data: bytes, at: int, end: int) -> list[Span]:
    """The password in `scheme://user:password@host`. `at` is the colon of the scheme, `end` behind the @."""
    colon = data.find(b":", at + 3, end)
    user, start, stop = data[at + 3 : colon], colon + 1, end - 1
    value = data[start:stop]
    if len(value) < SHORTEST or stands_in(value) or value.lower() == user.lower():
        return []
    if _words().match(value.lower()):
        return []
    if _PORT.match(value) and data[max(0, at - 5) : at].lower().endswith((b"http", b"https", b"ws", b"wss")):
        return []
    if b"{" in value or b"(" in value or (value.isalpha() and len(value) < 12) or not _drawn_password(value):
        return []
    return [Span(start, stop, "url-password", 2, distinctive(value))]


@cache
def _words() -> Any:
    return compiled(rb"^(?:\W|%..|[a-z])*$")


def _drawn_password(value: bytes) -> bool:
    return digits_in(value) > 0 or len(value) >= 12 or value.lower() != value


def url_token(data: bytes, at: int, end: int) -> list[Span]:
    """A token that stands for user and password in `scheme://token@host`."""
    value = data[at + 3 : end - 1]
    if len(value) < 20 or not looks_random(value) or stands_in(value):
        return []
    return [Span(at + 3, end - 1, "url-token", 2, True)]
