"""How many tokens the next prompt will have: the last one's true count, and an estimate of what was added."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from agent.payload import encode

if TYPE_CHECKING:
    from agent.state import State

BYTES_PER_TOKEN = 3.5
"""Of a prompt as JSON, until a generation has told better."""
LEAST, MOST = 1.5, 6.0
"""Bounds of that ratio: a provider's count may be of something else than what was sent."""


def ratio_of(size: int, tokens: int | None) -> float | None:
    """Bytes per token of a prompt; None where that is not known."""
    return min(MOST, max(LEAST, size / tokens)) if tokens and size else None


def size_of(messages: Iterable[dict[str, Any]]) -> int:
    """Bytes of messages as JSON."""
    return sum(len(encode(message)) for message in messages)


def tokens_of(state: "State", messages: Iterable[dict[str, Any]]) -> int:
    """The estimate for some messages of a session."""
    return int(size_of(messages) / state.ratio) + 1


def fixed_tokens(state: "State") -> int:
    """The system message and the tools."""
    head = [{"role": "system", "content": state.system or ""}, {"tools": state.tools or []}]
    return tokens_of(state, head)


def next_tokens(state: "State") -> int:
    """The next prompt, with steering messages that wait; an estimate where no generation counted it."""
    waiting = sum(len(item.text.encode("utf-8", "replace")) + 40 for item in state.steered)
    if state.counted_tokens:
        base, added = state.counted_tokens, state.messages[state.counted :]
    else:
        base, added = fixed_tokens(state), state.messages
    return base + tokens_of(state, added) + int(waiting / state.ratio)
