"""What one session must not show: finds secrets in its texts, names them, and puts them back."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tools.redaction.known import SHORTEST, Known
from tools.redaction.pieces import pieces
from tools.redaction.placeholders import PATTERN, PATTERN_BYTES, Placeholders
from tools.redaction.scan import Open, scan
from tools.redaction.spans import Span, merged
from tools.redaction.values import MARK, distinctive
from tools.redaction.values import SHORTEST as SHORTEST_VALUE


class UnknownPlaceholder(Exception):
    """A text holds a placeholder whose value is not known. `placeholder` is it."""

    def __init__(self, placeholder: str) -> None:
        super().__init__(placeholder)
        self.placeholder = placeholder


class Redactor:
    """Redacts the texts of one session, from any thread.

    `key` makes placeholders last: with the same key and `salt` a value has the same one after a restart.
    `known` are values that are secret wherever they stand, each with its kind.
    """

    def __init__(
        self, key: bytes | None = None, salt: str = "", known: Mapping[str, str] | None = None
    ) -> None:
        self._placeholders = Placeholders(key, salt)
        self._known = Known()
        self._own: set[bytes] = set()
        for value, kind in (known or {}).items():
            self.know(value, kind)

    def know(self, value: str, kind: str = "secret") -> bool:
        """Replace this value wherever it stands from now on; whether it can be (it is long enough)."""
        data = value.encode("utf-8", "surrogatepass")
        if len(data) < SHORTEST or b"\n" in data or MARK in data:
            return False
        self._placeholders.of(data, kind)
        self._known.add(data, kind)
        return True

    def redact(self, text: str) -> str:
        """The text with every secret replaced. What it teaches counts for all of it, and from now on."""
        if len(text) < SHORTEST:
            return text
        data = text.encode("utf-8", "surrogatepass")
        clean = self.redact_bytes(data)
        return text if clean is data else clean.decode("utf-8", "surrogatepass")

    def redact_bytes(self, data: bytes) -> bytes:
        """The same for bytes of any encoding that contains ASCII; the same object where nothing was found."""
        spans, _ = self._found(data, None)
        self._learn(data, spans)
        spans += self._known.spans(data)
        return self._replaced(data, spans)

    def redact_value(self, value: Any) -> Any:
        """Every string in a JSON-like value, names included. Under a secret's name stands a secret."""
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, dict):
            if value.get("type") in ("image", "audio") and isinstance(value.get("data"), str):
                return {
                    **self.redact_value({k: v for k, v in value.items() if k != "data"}),
                    "data": value["data"],
                }
            return {self.redact(str(key)): self._under(str(key), item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.redact_value(item) for item in value]
        return value

    def _under(self, name: str, value: Any) -> Any:
        if not isinstance(value, str):
            return self.redact_value(value)
        if len(value) < SHORTEST_VALUE:
            return value
        if "\n" in value or '"' in value or len(value) > 8192 or len(name) > 80:
            return self.redact(value)
        head = f'"{name}": "'
        whole = self.redact(f'{head}{value}"')
        return whole[len(head) : -1] if whole.startswith(head) and whole.endswith('"') else self.redact(value)

    def learn(self, text: str | bytes) -> None:
        """Know the secrets of a text that nobody is shown."""
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        spans, _ = self._found(data, None)
        self._learn(data, spans)
        for span in merged(spans):
            self._placeholders.of(data[span.start : span.end], span.kind)

    def own(self, text: str) -> None:
        """What the model wrote itself: values in it that were not known are nobody's secrets."""
        data = text.encode("utf-8", "surrogatepass")
        for span in merged(self._found(data, None)[0]):
            value = data[span.start : span.end]
            if value not in self._known and not self._placeholders.issued(value):
                self._own.add(value)

    def holds(self, text: str) -> bool:
        """Whether a text contains a value that is known to be secret."""
        return bool(len(self._known) and self._known.spans(text.encode("utf-8", "surrogatepass")))

    def conceal(self, text: str) -> str:
        """The text without the values that are known; rules are not asked."""
        if not len(self._known):
            return text
        data = text.encode("utf-8", "surrogatepass")
        clean = self._replaced(data, self._known.spans(data))
        return text if clean is data else clean.decode("utf-8", "surrogatepass")

    def unfinished(self, data: bytes) -> int:
        """Where a known value begins that may go on beyond the end of `data`."""
        return self._known.unfinished(data) if len(self._known) else len(data)

    # ---- the way back

    def placeholders(self, value: Any) -> set[str]:
        """The placeholders in the strings of a JSON-like value."""
        found: set[str] = set()
        for text in _strings(value):
            found.update(match[0] for match in PATTERN.finditer(text))
        return found

    def unknown(self, value: Any) -> set[str]:
        """Those of them whose value is not known."""
        return {
            one
            for one in self.placeholders(value)
            if self._placeholders.value(one.rpartition(":")[2].removesuffix("]")) is None
        }

    def resolve(self, value: Any, literal: Callable[[str], bool] = lambda _: False) -> Any:
        """A JSON-like value with every placeholder replaced by what it stands for.

        `literal` says of an unknown one whether it is ordinary text after all.

        Raises:
            UnknownPlaceholder: one stands for nothing that was met.
        """

        def true(match: Any) -> str:
            known = self._placeholders.value(match[1])
            if known is not None:
                return known.decode("utf-8", "surrogatepass")
            if literal(match[0]):
                return match[0]
            raise UnknownPlaceholder(match[0])

        if isinstance(value, str):
            return PATTERN.sub(true, value) if "[secret:" in value else value
        if isinstance(value, dict):
            return {self.resolve(key, literal): self.resolve(item, literal) for key, item in value.items()}
        if isinstance(value, list):
            return [self.resolve(item, literal) for item in value]
        return value

    # ---- how it is done

    def advance(self, data: bytes, block: Open | None) -> tuple[bytes, Open | None]:
        """Redact whole lines of a stream. What they teach counts from their own line on."""
        spans, block = self._found(data, block)
        spans += self._known.spans(data)
        for span in self._learn(data, spans):
            line = data.rfind(b"\n", 0, span.start) + 1
            spans += self._known.spans_of(data[span.start : span.end], data, line)
        return self._replaced(data, spans), block

    def _found(self, data: bytes, block: Open | None) -> tuple[list[Span], Open | None]:
        found: list[Span] = []
        for start, end in pieces(data):
            part = data if (start, end) == (0, len(data)) else data[start:end]
            spans, block = scan(part, block, self._known.has_part if len(self._known) else None)
            found += (
                spans
                if start == 0
                else [
                    Span(one.start + start, one.end + start, one.kind, one.rank, one.known) for one in spans
                ]
            )
        if found and MARK in data:
            kept = [match.span() for match in PATTERN_BYTES.finditer(data)]
            found = [one for one in found if not _touches(kept, one.start, one.end)]
        return found, block

    def _learn(self, data: bytes, spans: Iterable[Span]) -> list[Span]:
        """Know the values that can be told from ordinary text; where each new one was met."""
        fresh: list[Span] = []
        for span in sorted(spans):
            if self._known.full:
                break
            value = data[span.start : span.end]
            if not span.known or value in self._own or value in self._known or MARK in value:
                continue
            if distinctive(value) and self._known.add(value, span.kind):
                fresh.append(span)
        return fresh

    def _replaced(self, data: bytes, spans: list[Span]) -> bytes:
        if not spans:
            return data
        kept = [match.span() for match in PATTERN_BYTES.finditer(data)] if MARK in data else []
        parts: list[bytes] = []
        at = 0
        for span in merged(spans):
            start, end = _characters(data, span.start, span.end)
            if start < at or _touches(kept, start, end):
                continue
            parts += (data[at:start], self._placeholders.of(data[start:end], span.kind))
            at = end
        return b"".join((*parts, data[at:])) if parts else data


def _touches(places: list[tuple[int, int]], start: int, end: int) -> bool:
    """Whether any of the places, which are in order and apart, shares a byte with this one."""
    after = bisect_left(places, end, key=lambda place: place[0])
    return after > 0 and places[after - 1][1] > start


def _characters(data: bytes, start: int, end: int) -> tuple[int, int]:
    """The place widened to whole UTF-8 characters."""
    while start > 0 and start < len(data) and data[start] & 0xC0 == 0x80:
        start -= 1
    while end < len(data) and data[end] & 0xC0 == 0x80:
        end += 1
    return start, end


def _strings(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _strings(key)
            yield from _strings(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item)
