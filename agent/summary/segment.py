"""The conversation of a new segment: what opens it, and what of the old one stands behind that."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent import prompts
from agent.summary.pruning import newest
from agent.summary.size import fixed_tokens, size_of, tokens_of

if TYPE_CHECKING:
    from agent.state import State

LEDGER_SHARE, LEDGER_MOST = 0.25, 32_000
"""Of the window, and in characters: what the kept state may take."""
TAIL_SHARE = 0.5
"""Of the room that the opening leaves: what the newest steps may take where there is no summary."""
NO_SUMMARY = "[No summary could be had; the newest steps follow as they were, older ones are left out.]"


@dataclass(frozen=True, slots=True)
class Segment:
    """Messages of a new segment; `kept` of them are from the old one."""

    messages: list[dict[str, Any]]
    kept: int
    tokens: int
    """Estimate, without system message and tools."""


def opened(state: "State", text: str, window: int) -> Segment:
    """The segment that a summary opens. A prompt that no step has taken up yet stays as it is."""
    tail = _unanswered(state)
    return _segment(state, [_opening(state, text, window), *tail], len(tail))


def pruned(state: "State", window: int, limit: int) -> Segment:
    """The segment without a summary: the kept state, then the newest steps that fit into `limit` tokens."""
    opening, unanswered = _opening(state, NO_SUMMARY, window), _unanswered(state)
    older = state.messages[: len(state.messages) - len(unanswered)]
    if state.segment > 1 or older[:1] == state.messages[:1]:
        older = older[1:]  # the old opening, or the first prompt: both are in the kept state
    used = fixed_tokens(state) + tokens_of(state, [opening, *unanswered])
    room = int(max(0, limit - used) * TAIL_SHARE * state.ratio)
    tail = newest(older, room) if room else []
    return _segment(state, [opening, *tail, *unanswered], len(tail) + len(unanswered))


def _opening(state: "State", text: str, window: int) -> dict[str, Any]:
    room = min(LEDGER_MOST, int(window * LEDGER_SHARE * state.ratio))
    # Steering messages that wait and the unanswered prompt come whole behind the opening.
    without = [item.seq for item in state.steered]
    if state.asking is not None and state.ledger.words:
        without.append(state.asking_seq)
    kept = state.ledger.render(room, without=without)
    content = (
        f"{prompts.text('segment')}\n\n<summary>\n{text.strip()}\n</summary>\n\n"
        f"<state>\nKept by Etude, not by you:\n\n{kept}\n</state>"
    )
    return {"role": "user", "content": content}


def _unanswered(state: "State") -> list[dict[str, Any]]:
    return [dict(state.messages[-1])] if state.asking is not None and state.messages else []


def _segment(state: "State", messages: Sequence[dict[str, Any]], kept: int) -> Segment:
    return Segment([dict(message) for message in messages], kept, int(size_of(messages) / state.ratio) + 1)
