"""Any other model family, by the chat template that comes with the model."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import orjson

from agent.rendering.codec import Codec
from agent.rendering.renderer import Message

Apply = Callable[[list[Message], list[Message], bool], str]
"""Messages, tools, whether to open an answer → text. Raises `ValueError` for what the template refuses."""

_SPLIT: Final = "\ue000"
"""Put into control tokens that people or tools wrote, so that they stay characters."""


class Template:
    """Appends where the template's text of a longer conversation begins with that of the shorter one."""

    def __init__(
        self, codec: Codec, apply: Apply, ends: Iterable[str], control: Iterable[str], end_ids: Iterable[int]
    ):
        """`ends` are the texts of tokens that end an answer, `control` all control tokens."""
        self.end_ids = frozenset(end_ids)
        self._codec, self._apply, self._ends = codec, apply, list(ends)
        self._control = sorted(control, key=len, reverse=True)

    def fresh(self, messages: Sequence[Message], tools: Sequence[Message]) -> list[int]:
        return self._encode(self._text(messages, tools, True))

    def extend(
        self, before: Sequence[Message], new: Sequence[Message], tools: Sequence[Message], ended: bool
    ) -> list[int] | None:
        short, long = self._text(before, tools, False), self._text([*before, *new], tools, True)
        at, end = max((short.rfind(end), end) for end in self._ends)
        if at < 0 or not long.startswith(short):
            return None
        return self._encode(long[at + len(end) if ended else at :])

    def unanswered(self, prompt: Sequence[int], new: Sequence[Message]) -> list[int] | None:
        return None

    def call(self, name: str, arguments: dict[str, Any]) -> list[int] | None:
        return None

    def _text(self, messages: Sequence[Message], tools: Sequence[Message], opening: bool) -> str:
        said = [self._break(_with_objects(message)) for message in messages]
        return self._apply(said, self._break(list(tools)), opening)

    def _break(self, value: Any) -> Any:
        """Whatever people, tools or models wrote, at any depth, without control tokens in it."""
        if isinstance(value, dict):
            return {self._break(key): self._break(part) for key, part in value.items()}
        if isinstance(value, list):
            return [self._break(part) for part in value]
        if not isinstance(value, str):
            return value
        value = value.replace(_SPLIT, "\ufffd")
        for token in self._control:
            value = value.replace(token, token[0] + _SPLIT + token[1:])
        return value

    def _encode(self, text: str) -> list[int]:
        return [id for part in text.split(_SPLIT) for id in self._codec.encode_control(part)]


def _with_objects(message: Message) -> Message:
    """A message whose calls' arguments are objects, as templates want them."""
    made = {**message, "content": message.get("content") or ""}
    if message.get("tool_calls"):
        made["tool_calls"] = [
            {**call, "function": {**call["function"], "arguments": _object(call["function"]["arguments"])}}
            for call in message["tool_calls"]
        ]
    return made


def _object(arguments: str) -> Any:
    try:
        return orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        return {"malformed": arguments}
