"""The names that stand in the place of secrets, and the way back."""

import hmac
import re
import secrets
from typing import Final

PATTERN: Final = re.compile(r"\[secret:[a-z0-9-]{1,40}:([0-9a-f]{8,64})\]")
"""A placeholder in text; its group names the value."""
PATTERN_BYTES: Final = re.compile(PATTERN.pattern.encode())
_LENGTH: Final = 8


class Placeholders:
    """`[secret:KIND:NAME]` for each value of one session.

    The name is a keyed hash, so it says nothing of the value to whoever lacks the key, and it is the same
    after a restart. Without a key names last as long as this object.
    """

    def __init__(self, key: bytes | None = None, salt: str = "") -> None:
        self._key = hmac.digest(key or secrets.token_bytes(32), salt.encode(), "sha256")
        self._values: dict[str, bytes] = {}
        self._made: dict[bytes, bytes] = {}

    def of(self, value: bytes, kind: str) -> bytes:
        """The placeholder of a value. The kind it was first met with stays."""
        made = self._made.get(value)
        if made is None:
            whole = hmac.digest(self._key, value, "sha256").hex()
            length = _LENGTH
            while self._values.setdefault(whole[:length], value) != value:
                length *= 2
            made = self._made[value] = f"[secret:{kind}:{whole[:length]}]".encode()
        return made

    def value(self, name: str) -> bytes | None:
        """The value that a name stands for; None where it has not been met since this object was made."""
        return self._values.get(name)

    def issued(self, value: bytes) -> bool:
        """Whether a value has a placeholder."""
        return value in self._made
