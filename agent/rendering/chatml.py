"""ChatML, the form of SmolLM2, Qwen and many small models, with tools in `<tools>` and `<tool_call>` tags."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson

from agent.rendering.codec import Codec
from agent.rendering.renderer import Message

START: Final = "<|im_start|>"
END: Final = "<|im_end|>"
OPENING: Final = f"{START}assistant\n"

_TOOLS: Final = """You may use these tools:
<tools>
{tools}
</tools>
To use one, answer with
<tool_call>
{{"name": "TOOL", "arguments": {{"ARGUMENT": "VALUE"}}}}
</tool_call>
and wait for the <tool_response>. Otherwise answer in plain text."""


class ChatML:
    """Each message is a block of its own, so a longer conversation only appends blocks."""

    def __init__(self, codec: Codec, end_ids: Iterable[int] = ()) -> None:
        """`end_ids`: further ids that end an answer, as the model's configuration says."""
        end = codec.id(END)
        if end is None or codec.id(START) is None:
            raise ValueError(f"this tokenizer has no {START} and {END}")
        self.end_ids = frozenset((end, *end_ids))
        self._codec = codec
        self._opening = codec.encode_control(OPENING)

    @staticmethod
    def fits(codec: Codec) -> bool:
        return codec.id(START) is not None and codec.id(END) is not None

    def fresh(self, messages: Sequence[Message], tools: Sequence[Message]) -> list[int]:
        system, rest = "", list(messages)
        if rest and rest[0].get("role") in ("system", "developer"):
            system, rest = content(rest[0]), rest[1:]
        if tools and (described := self._described(tools)):
            system = f"{system}\n\n{described}".strip()
        ids = self._block("system", system) if system else []
        return [*ids, *self._blocks(rest, ()), *self._opening]

    def extend(
        self, before: Sequence[Message], new: Sequence[Message], tools: Sequence[Message], ended: bool
    ) -> list[int] | None:
        close = "\n" if ended else f"{END}\n"
        return [*self._codec.encode_control(close), *self._blocks(new, before), *self._opening]

    def unanswered(self, prompt: Sequence[int], new: Sequence[Message]) -> list[int] | None:
        size = len(self._opening)
        if list(prompt[-size:]) != self._opening:
            return None
        return [*prompt[:-size], *self._blocks(new, ()), *self._opening]

    def call(self, name: str, arguments: dict[str, Any]) -> list[int] | None:
        # With the spaces of Python's json: what models have seen most.
        body = f'<tool_call>\n{{"name": {_json(name)}, "arguments": {_json(arguments)}}}\n</tool_call>'
        return [*self._codec.encode(body), *self._codec.encode_control(END)]

    def _described(self, tools: Sequence[Message]) -> str:
        """What the system message says of the tools."""
        return _TOOLS.format(tools="\n".join(orjson.dumps(tool["function"]).decode() for tool in tools))

    def _returned(self, results: Sequence[tuple[str, str]], asked: str) -> str:
        """The user turn that hands over results: (tool, text) each; `asked` is the user's last message."""
        return "\n".join(f"<tool_response>\n{text}\n</tool_response>" for _, text in results)

    def _blocks(self, new: Sequence[Message], before: Sequence[Message]) -> list[int]:
        ids: list[int] = []
        results: list[tuple[str, str]] = []
        asked, names = "", {}
        for at, message in enumerate([*before, *new]):
            role, text, calls = message.get("role", "user"), content(message), message.get("tool_calls") or ()
            names.update({call["id"]: call["function"]["name"] for call in calls})
            fresh = at >= len(before)
            if role == "tool":
                if fresh:
                    results.append((names.get(message.get("tool_call_id"), "tool"), text))
                continue
            if results:
                ids += self._block("user", self._returned(results, asked))
                results = []
            if role == "user":
                asked = text
            if fresh:
                text = "\n".join(
                    part for part in (text, *(_written(call["function"]) for call in calls)) if part
                )
                ids += self._block("system" if role == "developer" else role, text)
        if results:
            ids += self._block("user", self._returned(results, asked))
        return ids

    def _block(self, role: str, text: str) -> list[int]:
        control = self._codec.encode_control
        return [*control(f"{START}{role}\n"), *self._codec.encode(text), *control(f"{END}\n")]


def content(message: Message) -> str:
    """A message's text; of a list of parts, the text parts."""
    value = message.get("content")
    if isinstance(value, list):
        return "\n".join(str(part.get("text", "")) for part in value if part.get("type") == "text")
    return value or ""


def _written(function: dict[str, Any]) -> str:
    name, arguments = function["name"], function.get("arguments") or "{}"
    return f'<tool_call>\n{{"name": {_json(name)}, "arguments": {arguments}}}\n</tool_call>'


def _json(value: Any) -> str:
    """JSON with a space after each colon and comma."""
    match value:
        case dict():
            return "{" + ", ".join(f"{_json(key)}: {_json(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_json, value)) + "]"
        case _:
            return orjson.dumps(value).decode()
