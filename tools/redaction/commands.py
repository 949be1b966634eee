"""Passwords that programs are given without a name: short options, and words of their own languages."""

import re
from typing import Final

from tools.redaction.assignments import kind_of, value_at
from tools.redaction.spans import Span
from tools.redaction.values import distinctive, is_secret, looks_random

_WORD: Final = rb"(?:^|[\s/;&|'\"`(:])"
LINE: Final = (
    _WORD
    + rb"(?:(?:mysql[a-z]*|mariadb[a-z-]*)[ \t][^\n|;&]*?-p|sshpass[ \t]+-p[ \t]*|"
    + rb"(?:docker|podman|helm|nerdctl|buildah|oras|az)[a-z \t]*[ \t]login[ \t][^\n|;&]*?-p[ \t]+|"
    + rb"redis-cli[ \t][^\n|;&]*?-a[ \t]+|ldap[a-z]+[ \t][^\n|;&]*?-w[ \t]+|"
    + rb"keytool[ \t][^\n|;&]*?pass[ \t]+|rabbitmqctl[ \t]+(?:add_user|change_password)[ \t]+\S+[ \t]+|"
    + rb"(?:requirepass|masterauth)[ \t]+|-pass(?:in|out)?[ \t]+pass:|"
    + rb"(?:setenv|ENV|set[ \t]+-[a-zA-Z]+)[ \t]+[A-Z0-9_]*(?:PASSWORD|PASSWD|SECRET|TOKEN|_KEY|PASS)[ \t]+|"
    + rb"aws_secret_access_key[ \t]+|"
    + rb"(?i:identified[ \t]+by|with[ \t]+password|encrypted[ \t]+password)[ \t]+|"
    + rb"define\([ \t]*[\"'][A-Z0-9_]*(?:PASSWORD|_KEY|SECRET|TOKEN|_SALT)[\"'][ \t]*,[ \t]*|"
    + rb"jdbc:oracle:[a-z]+:\w+/|(?:pass|psk)[ \t]*=[ \t]*)"
    + rb"|(?m:^)[ \t|]*[\w.-]*(?i:password|passwd|secret|token|api[_-]?key)[ \t]*[|\t ][ \t|]*"
)
"""What stands before such a password."""

_STRONG: Final = re.compile(rb"(?i)-p[ \t]*$|-[aw][ \t]+$|pass:$|requirepass|masterauth|keytool|by[ \t]*$")

_QUOTED: Final = re.compile(rb"(?:by|with[ \t]+password|encrypted[ \t]+password)[ \t]+$")
"""Words of SQL, which have the password in quotes."""
_HASH: Final = re.compile(rb"(?i)[0-9a-f]+(?:-[0-9a-f]+)*$")
_TABLE: Final = re.compile(rb"[ \t|]*[\w.-]*[ \t]*[|\t ][ \t|]*")
"""A row of a table, or a line of `.netrc`: the password is all that follows."""


def password(data: bytes, at: int, stop: int, end: int) -> list[Span]:
    """The password behind the words from `at` to `stop`, if it is one."""
    start, close = value_at(data, stop, end)
    words = data[at:stop].lower()
    if words.startswith(b"jdbc:", 1) or words.startswith(b"jdbc:"):
        close = data.find(b"@", start, close)
        if close < 0:
            return []
    value = data[start:close]
    if _QUOTED.search(words) and data[start - 1 : start] not in (b"'", b'"'):
        return []
    if words.endswith((b" ", b"\t")) and _TABLE.fullmatch(words):
        feed = data.find(b"\n", close, close + 64)
        rest = data[close : feed if feed >= 0 else close + 64]
        if rest.strip(b" \t\r|") or not looks_random(value) or _HASH.match(value):
            return []
    if start == close or value.startswith(b"-") or not is_secret(value, numeric=False):
        return []
    kind = "password" if _STRONG.search(words) else kind_of(words[-48:])
    return [Span(start, close, kind, 4, distinctive(value))]
