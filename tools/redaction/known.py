"""Values that are known to be secret, wherever and in whatever form they stand."""

import base64
import json
import re
import threading
from typing import Any, Final
from urllib.parse import quote, quote_plus

from tools.redaction.engine import compiled
from tools.redaction.spans import Span

LIMIT: Final = 500
"""Values that are kept; whoever has more secrets keeps the first ones."""
_HEAD: Final = 6
"""Bytes by which a value is looked for: a rule of whole values would be too large for the engine."""
SHORTEST: Final = 8
"""Bytes of the shortest text in which a rule can find anything, and of the shortest value known by itself."""
_LONGEST: Final = 8192
_FRAGMENT: Final = 8


class Known:
    """A growing set of values, each with its kind. `spans` and `unfinished` may be called from any thread."""

    def __init__(self) -> None:
        self._kinds: dict[bytes, str] = {}
        self._forms: dict[bytes, tuple[str, bool]] = {}
        self._heads: Any = None
        self._by_head: dict[bytes, list[bytes]] = {}
        self._stale = False
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kinds)

    def __contains__(self, value: bytes) -> bool:
        return value in self._kinds

    def add(self, value: bytes, kind: str) -> bool:
        """Know one more value; False where it was known or there is no room."""
        if value in self._kinds or len(self._kinds) >= LIMIT or not SHORTEST <= len(value) <= _LONGEST:
            return False
        with self._lock:
            self._kinds[value] = kind
            for form, encoded in _forms(value):
                if form not in self._forms:
                    self._forms[form] = (kind, encoded)
                    same = [*self._by_head.get(form[:_HEAD], ()), form]
                    self._by_head[form[:_HEAD]] = sorted(same, key=len, reverse=True)
            self._stale = True
        return True

    def spans(self, data: bytes, start: int = 0, end: int | None = None) -> list[Span]:
        """Where any of the values stands."""
        heads = self._rule()
        found: list[Span] = []
        at = start
        while heads is not None and (match := heads.search(data, at, end)) is not None:
            at = match.start()
            form = next((one for one in self._by_head[match[0]] if data.startswith(one, at)), None)
            if form is None:
                at += 1
                continue
            kind, encoded = self._forms[form]
            place = _whole(data, at, at + len(form)) if encoded else (at, at + len(form))
            found.append(Span(*place, kind, 2, True))
            at += len(form)
        return found

    def spans_of(self, value: bytes, data: bytes, start: int) -> list[Span]:
        """Where one value stands, from `start` on."""
        found: list[Span] = []
        for form, encoded in _forms(value):
            at = data.find(form, start)
            while at >= 0:
                place = _whole(data, at, at + len(form)) if encoded else (at, at + len(form))
                found.append(Span(*place, self._kinds.get(value, "secret"), 2, True))
                at = data.find(form, at + len(form))
        return found

    def has_part(self, text: bytes) -> bool:
        """Whether a text holds a value, begins with the end of one or ends with the beginning of one."""
        if self.spans(text):
            return True
        head, tail = text[:_LONGEST], text[-_LONGEST:]
        return any(
            any(
                tail.endswith(value[:size]) or head.startswith(value[-size:])
                for size in range(_FRAGMENT, len(value))
            )
            for value in tuple(self._kinds)[:200]
            if len(value) < 200
        )

    def unfinished(self, data: bytes) -> int:
        """Where a value begins that may go on beyond the end; the length of `data` where none does."""
        heads = self._rule()
        if heads is None:
            return len(data)
        whole = [(span.start, span.end) for span in self.spans(data)]
        end, at = whole[-1][1] if whole else 0, 0
        while (found := heads.search(data, at)) is not None:
            at = found.start()
            rest = data[at:]
            inside = any(start < at < stop for start, stop in whole)
            forms = () if inside else self._by_head.get(rest[:_HEAD], ())
            if any(form.startswith(rest) and len(form) > len(rest) for form in forms):
                return at
            at += 1
        for size in range(min(_HEAD - 1, len(data) - end), 0, -1):
            tail = data[-size:]
            if any(head.startswith(tail) for head in self._by_head):
                return len(data) - size
        return len(data)

    def _rule(self) -> Any:
        if self._stale:
            with self._lock:
                self._heads = compiled(b"|".join(map(re.escape, self._by_head)))
                self._stale = False
        return self._heads


def _forms(value: bytes) -> list[tuple[bytes, bool]]:
    """A value as it is, as in JSON, as in a URL, and inside base64; with whether it is that."""
    forms: dict[bytes, bool] = {value: False}
    text = value.decode("utf-8", "surrogateescape")
    if not any("\udc80" <= character <= "\udcff" for character in text):
        for form in (
            json.dumps(text)[1:-1],
            json.dumps(text, ensure_ascii=False)[1:-1],
            quote(text, safe=""),
            quote(text),
            quote_plus(text),
        ):
            forms.setdefault(form.encode("utf-8"), False)
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + value).rstrip(b"=")
        # Characters that share bits with what stands before or after the value differ from place to place.
        first, last = (0, 2, 3)[shift], (shift + len(value)) * 8 // 6
        if len(core := encoded[first:last]) >= 10:
            forms.setdefault(core, True)
            forms.setdefault(core.translate(bytes.maketrans(b"+/", b"-_")), True)
    return list(forms.items())


_BASE64: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")


def _whole(data: bytes, at: int, stop: int) -> tuple[int, int]:
    """With the characters at both ends that hold some bits of the value."""
    if at > 0 and data[at - 1] in _BASE64:
        at -= 1
    if stop < len(data) and data[stop] in _BASE64:
        stop += 1
    while stop < len(data) and data[stop] == 61:
        stop += 1
    return at, stop
