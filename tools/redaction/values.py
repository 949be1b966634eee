"""Whether a value looks like a secret, or like what stands in the place of one."""

import re
from functools import cache, lru_cache
from math import log2
from typing import Any, Final

from tools.redaction.engine import compiled

MARK: Final = b"[secret:"
"""How a placeholder begins."""

SHORTEST: Final = 6
"""Bytes of the shortest one."""
LONGEST: Final = 1024
"""Bytes of the longest value that its name alone makes a secret."""

_STAND_IN: Final = (
    rb"(?i)^\$|\$[{(]|(?-i:\$[A-Z_]{3,})|%\(|%[sd]$|\{\{|^<.*>$|^@[\w.-]+@$|\*{3,}|\.{3,}|x{4,}|X{4,}|"
    rb"(?:^|[-_ .])(?:example|sample|dummy|fake|changeme|change[-_]?(?:me|this|it)|placeholder|"
    rb"replace[-_]?me|redacted|removed|hidden|masked|todo|fixme|your|insert|undefined|insecure)(?:[-_ .]|$)|"
    rb"^your|^my[-_]?(?:secret|token|password|key)|EXAMPLE|\[secret:"
)
_PATH: Final = re.compile(rb"^(?:~|\.{0,2})/[\w.~/@-]*$|^[A-Za-z]:\\|^[a-z][a-z0-9+.-]*://[^@]*$")
_CODE: Final = re.compile(rb"^[A-Za-z_][\w]*(?:(?:\.|->|::)[A-Za-z_]\w*)*(?:[(\[{].*)?$")
_NUMBER: Final = re.compile(rb"^[-+]?[0-9][0-9._,]*(?:[eE][-+]?[0-9]+)?,?$")
_PART: Final = re.compile(rb"[A-Za-z0-9]+")
_HEX: Final = re.compile(rb"^(?:[0-9a-f]+|[0-9A-F]+)$")
_WORD: Final = re.compile(rb"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[A-Z]|[0-9]+")
_ORDINARY: Final = frozenset(
    b"none null nil true false yes no on off empty test testing tester password passwd passphrase pass pw "
    b"pwd secret token key user username admin administrator root guest postgres mysql redis mongo rabbitmq "
    b"default string str bytes bearer basic digest negotiate required optional development production "
    b"staging local localhost ollama dummy foo bar baz foobar qwerty letmein "
    b"12345 123456 1234567 12345678 123456789 1234567890 abc123 test123 test1234 pass123 pass1234 password1 "
    b"password12 password123 password1234 secret1 secret123 admin123 token1 token123 user123 abcdef123456 "
    b"abcd1234 a1b2c3d4 passw0rd p4ssw0rd p@ssw0rd p@ssword pa55word pa$$word".split()
)


_BITS: Final = (0.0, *(n * log2(n) for n in range(1, LONGEST + 1)))
_RECENT: Final = 64
"""Values about which an answer is remembered: one value is asked about several times in a row."""
_LOWER: Final = b"abcdefghijklmnopqrstuvwxyz"
_UPPER: Final = _LOWER.upper()
_DIGITS: Final = b"0123456789"


@cache
def _stand_in() -> Any:
    return compiled(_STAND_IN)


def entropy(value: bytes) -> float:
    """Shannon entropy of the bytes of a value, in bits for each."""
    size = len(value)
    if not size:
        return 0.0
    # Rounded: sixteen different bytes have four bits each, not a little less.
    counts = map(value.count, set(value))
    bits = sum(map(_BITS.__getitem__, counts)) if size < len(_BITS) else sum(n * log2(n) for n in counts)
    return round(log2(size) - bits / size, 9)


@lru_cache(_RECENT)
def stands_in(value: bytes) -> bool:
    """Whether a value is the place of a secret rather than one: a template, a word for it, nothing."""
    if not value or value.strip(b"\"'").lower() in _ORDINARY:
        return True
    return _stand_in().search(value) is not None


@lru_cache(_RECENT)
def looks_random(value: bytes) -> bool:
    """Whether some part of a value was drawn rather than named: letters and digits in short runs."""
    return len(value) >= 8 and entropy(value) >= 2.7 and any(map(_drawn, _PART.findall(value)))


def _drawn(part: bytes) -> bool:
    """Letters and digits whose words, as camel case has them, are too short to be words."""
    size = len(part)
    if size < 8 or (digits := digits_in(part)) == size:
        return False
    if size >= 16 and digits > 2 and _HEX.match(part):
        return True
    mean = size / len(_WORD.findall(part))
    if not digits:
        return size >= 20 and mean <= 3.3 and entropy(part) >= 3.5 and not part.islower()
    return mean <= (3.2 if size < 16 else 4.5 if digits > 2 else 3.8)


def classes(value: bytes) -> int:
    """How many of lower case, upper case, digits and other characters a value has."""
    found, left = 0, value
    for kind in (_LOWER, _UPPER, _DIGITS):
        size, left = len(left), left.translate(None, kind)
        found += len(left) < size
    return found + bool(left)


def digits_in(value: bytes) -> int:
    """How many digits a value has."""
    return len(value) - len(value.translate(None, _DIGITS))


def is_secret(value: bytes, *, numeric: bool = False, plain: bool = False) -> bool:
    """Whether the value of something named like a secret is one.

    `plain`: it is written as configuration (`NAME=value` at the start of a line), where nothing but a value
    can stand, so that weaker ones count too. `numeric`: a number may be one (a password, not a token count).
    """
    if not SHORTEST <= len(value) <= LONGEST or b" " in value or b"\t" in value:
        return False
    if stands_in(value) or _PATH.match(value):
        return False
    if _NUMBER.match(value):
        return numeric and plain and value.isdigit()
    if looks_random(value):
        return True
    if plain:
        kinds = classes(value)
        ordinary = _CODE.match(value) is not None and not digits_in(value)
        return (kinds >= 2 and not ordinary) or len(value) >= 24
    return len(value) >= 8 and _mixed(value)


def _mixed(value: bytes) -> bool:
    """A made-up password: at least three kinds of characters, none of them because it is code."""
    if _CODE.match(value) or re.search(rb"[(){}\[\]<>=]|::|->|\w\.\w", value):
        return False
    return classes(value.translate(None, b"-_.:\\")) >= 3 and digits_in(value) > 0 and b"/" not in value


def distinctive(value: bytes) -> bool:
    """Whether a value can be replaced wherever it stands without breaking ordinary text."""
    if len(value) < 8 or stands_in(value) or value.isdigit() or b"\n" in value:
        return False
    return (
        looks_random(value)
        or (classes(value) >= 3 and len(value) >= 8 and not _CODE.match(value))
        or (len(value) >= 20 and entropy(value) >= 3.3 and classes(value) >= 2 and not _CODE.match(value))
    )
