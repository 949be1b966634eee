"""The exact ids of live conversations: what the model saw and wrote stays as it is, the new is appended."""

import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from agent.events import Call
from agent.rendering.chatml import content
from agent.rendering.renderer import Message, Renderer

Context = Literal["start", "extend", "fork"]
"""`start`: nothing was sampled in this conversation before. `extend`: the prompt begins with the last prompt
and the ids sampled after it. `fork`: earlier answers are in the prompt as text, tokenised anew."""

KEPT: Final = 64
"""Conversations whose ids are kept; the least recently used goes first and is a fork when it comes back."""


@dataclass(frozen=True, slots=True)
class Prompt:
    ids: list[int]
    context: Context


@dataclass(slots=True)
class _Known:
    messages: list[Message]
    tools: list[Message]
    prompt: list[int]
    sampled: list[int] = field(default_factory=list)
    ended: bool = False
    answer: tuple[str, list[Call]] | None = None


class Conversations:
    """Renders each request of a session as an extension of the one before, where that is true."""

    def __init__(self, renderer: Renderer, kept: int = KEPT) -> None:
        self._renderer, self._kept = renderer, kept
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._lock = threading.Lock()

    def prompt(self, session_id: str, messages: Sequence[Message], tools: Sequence[Message]) -> Prompt:
        """The ids to go on from."""
        with self._lock:
            known = self._known.get(session_id)
            ids = self._appended(known, messages, tools) if known else None
            context: Context = "extend"
            if ids is None:
                ids = self._renderer.fresh(messages, tools)
                answered = any(message.get("role") == "assistant" for message in messages)
                context = "fork" if answered else "start"
            self._known[session_id] = _Known(list(messages), list(tools), ids)
            self._known.move_to_end(session_id)
            while len(self._known) > self._kept:
                self._known.popitem(last=False)
            return Prompt(ids, context)

    def answered(
        self, session_id: str, prompt: Prompt, sampled: list[int], ended: bool, text: str, calls: list[Call]
    ) -> None:
        """Note what was sampled after a prompt, and how it was read. `ended`: the end token was drawn."""
        with self._lock:
            known = self._known.get(session_id)
            if known is not None and known.prompt is prompt.ids:
                known.sampled, known.ended, known.answer = sampled, ended, (text, calls)

    def _appended(
        self, known: _Known, messages: Sequence[Message], tools: Sequence[Message]
    ) -> list[int] | None:
        count = len(known.messages)
        if list(tools) != known.tools or list(messages[:count]) != known.messages:
            return None
        new = list(messages[count:])
        if not new:
            return list(known.prompt)
        if known.answer is not None and _is(new[0], *known.answer):
            tail = self._renderer.extend(messages[: count + 1], new[1:], tools, known.ended)
            return None if tail is None else [*known.prompt, *known.sampled, *tail]
        # The answer was cut short or dropped; what of it stayed is part of the new messages.
        return self._renderer.unanswered(known.prompt, new)


def _is(message: Message, text: str, calls: list[Call]) -> bool:
    """Whether the message is this answer. Ids of calls may have been given anew by the caller."""
    if message.get("role") != "assistant" or content(message) != text:
        return False
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    return len(functions) == len(calls) and all(
        function["name"] == call.name and _same(function["arguments"], call.arguments)
        for function, call in zip(functions, calls, strict=True)
    )


def _same(theirs: str, ours: str) -> bool:
    """Equal arguments; malformed or huge ones come back replaced by a note."""
    if theirs == (ours or "{}"):
        return True
    try:
        note, valid = json.loads(theirs), isinstance(json.loads(ours), dict)
    except json.JSONDecodeError:
        note, valid = {"malformed": ""}, False
    return isinstance(note, dict) and ("left_out" in note if valid else True)
