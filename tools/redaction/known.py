"""Values that are known to be secret, wherever and in whatever form they stand."""

import base64
import json
import re
import threading
from bisect import bisect_right
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
        self._shorter: dict[bytes, bytes | None] = {}
        """The longest other form that each one begins with."""
        self._longest = 0
        self._lines: tuple[int, bytes] | None = None
        self._by_head: dict[bytes, list[bytes]] = {}
        self._stale = False
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kinds)

    @property
    def full(self) -> bool:
        """Whether there is no room for more."""
        return len(self._kinds) >= LIMIT

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
                    self._insert(form)
            self._stale = True
        return True

    def spans(self, data: bytes, start: int = 0, end: int | None = None) -> list[Span]:
        """Where any of the values stands."""
        heads = self._rule()
        found: list[Span] = []
        at = start
        while heads is not None and (match := heads.search(data, at, end)) is not None:
            at = match.start()
            form = self._form_at(data, at, match[0])
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
        values = self._joined()
        for fragment, last in ((text[:_FRAGMENT], False), (text[-_FRAGMENT:], True)):
            at = -1 if len(fragment) < _FRAGMENT or b"\n" in fragment else values.find(fragment)
            while at >= 0:
                if last and text.endswith(values[values.rfind(b"\n", 0, at) + 1 : at + _FRAGMENT]):
                    return True
                if not last and text.startswith(values[at : values.find(b"\n", at)]):
                    return True
                at = values.find(fragment, at + 1)
        return False

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

    def _form_at(self, data: bytes, at: int, head: bytes) -> bytes | None:
        """The longest form of a value that stands at a place where its head does."""
        forms = self._by_head[head]
        # The last form in order that is not after the text: every form that begins the text begins it, too.
        last = bisect_right(forms, data[at : at + self._longest])
        form = forms[last - 1] if last else None
        while form is not None and not data.startswith(form, at):
            form = self._shorter[form]
        return form

    def _insert(self, form: bytes) -> None:
        forms = list(self._by_head.get(form[:_HEAD], ()))  # a new one: others may be reading the old
        at = bisect_right(forms, form)
        shorter = forms[at - 1] if at else None
        while shorter is not None and not form.startswith(shorter):
            shorter = self._shorter[shorter]
        self._shorter[form] = shorter
        for longer in forms[at:]:
            if not longer.startswith(form):
                break
            if self._shorter[longer] == shorter:
                self._shorter[longer] = form
        forms.insert(at, form)
        self._by_head[form[:_HEAD]] = forms
        self._longest = max(self._longest, len(form))

    def _joined(self) -> bytes:
        """The shorter values, a line each."""
        if self._lines is None or self._lines[0] != len(self._kinds):
            short = [value for value in tuple(self._kinds)[:200] if len(value) < 200]
            self._lines = len(self._kinds), b"".join(value + b"\n" for value in short)
        return self._lines[1]

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
