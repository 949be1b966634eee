"""What a client received of one session, put together by the rules of the protocol."""

from collections.abc import Iterable
from typing import Any

from tests.support.acp import AcpClient


class Received:
    """A fold of a client's frames that fails on anything a client must never see.

    An event twice, out of order or with parts missing; characters changed or with a gap.
    """

    def __init__(self, session: str, after: int = 0) -> None:
        self.session, self.last = session, after
        self.kinds: dict[int, list[str]] = {}
        self.texts: dict[str, str] = {}
        self.stored: dict[str, int] = {}
        self._part = 0

    @classmethod
    def of(cls, client: AcpClient, session: str, after: int = 0) -> "Received":
        received = cls(session, after)
        received.take(frame.message for frame in client.frames)
        return received

    def take(self, messages: Iterable[dict[str, Any]]) -> None:
        for message in messages:
            params = message.get("params") or {}
            if params.get("sessionId") == self.session and "id" not in message:
                self._take(message["method"], params)

    def _take(self, method: str, params: dict[str, Any]) -> None:
        mark = params.get("_meta", {}).get("etude", {}) if method == "session/update" else params
        if method == "_etude/stored":
            self._next(params, method)
            have = len(self.texts.get(params["messageId"], ""))
            assert params["end"] <= have, f"stored up to {params['end']}, but only {have} characters came"
            self.stored[params["messageId"]] = params["end"]
        elif method == "_etude/event":
            self._next(params, params["type"])
        elif method == "session/update":
            if not mark.get("live"):
                self._next(mark, params["update"]["sessionUpdate"])
            if "offset" in mark:
                self._text(params["update"], mark)

    def _next(self, mark: dict[str, Any], kind: str) -> None:
        seq, part, parts = mark["seq"], mark.get("part", 1), mark.get("parts", 1)
        if part == 1:
            assert seq == self.last + 1, f"event {seq} ({kind}) came after {self.last}"
        else:
            assert (seq, part) == (self.last + 1, self._part + 1), f"part {part} of {seq} is out of order"
        self.kinds.setdefault(seq, []).append(kind)
        self._part = part
        if part == parts:
            self.last = seq

    def _text(self, update: dict[str, Any], mark: dict[str, Any]) -> None:
        content = update["content"]
        text = content[0]["content"]["text"] if isinstance(content, list) else content["text"]
        id, offset = mark["messageId"], mark["offset"]
        have = self.texts.get(id, "")
        if id not in self.texts and "seq" in mark:
            have = " " * offset  # attached in the middle: what came before is not ours to judge
        assert offset <= len(have), f"characters {len(have)}..{offset} of {id} are missing"
        assert have[offset:].startswith(text) or text.startswith(have[offset:]), "characters changed"
        self.texts[id] = have[:offset] + text if offset + len(text) >= len(have) else have
        if "seq" in mark:
            self.stored[id] = max(self.stored.get(id, 0), offset + len(text))
