"""One turn, from the prompt to its end: limits watched, Ctrl-C turned into a cancel, questions put."""

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from server.failure import CommandFailed
from server.terminal.conversation import Conversation, Ended, Item

STOP_S = 30.0
"""How long a cancelled turn may take to end."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop a turn that nobody watches: model calls (the server counts), US dollars, seconds."""

    steps: int | None = None
    cost: float | None = None
    seconds: float | None = None


def play(
    conversation: Conversation,
    text: str,
    *,
    show: Callable[[Item], None],
    approve: Callable[[Item], str | None],
    answer: Callable[[Item], Mapping[str, str] | None] = lambda item: None,
    limits: Limits | None = None,
) -> Ended:
    """Run one turn to its end. Ctrl-C cancels it; pressed three times, it raises `KeyboardInterrupt`."""
    limits = limits or Limits()
    started, stopped, why, presses = time.monotonic(), 0.0, "", 0

    def on_interrupt(number: int, frame: object) -> None:
        conversation.client.interrupt()

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        for item in conversation.turn(text, limits.steps):
            if item.kind == "interrupt":
                presses += 1
                if presses >= 3:
                    raise KeyboardInterrupt
                why = why or "interrupted"
            elif item.kind == "permission":
                conversation.decide(item, approve(item))
            elif item.kind == "form":
                conversation.fill(item, answer(item))
            else:
                show(item)
            why = why or _over(limits, time.monotonic() - started, item)
            if why and not stopped:
                stopped = time.monotonic()
                conversation.cancel()
            if stopped and time.monotonic() - stopped > STOP_S:
                raise CommandFailed(f"the turn did not stop within {STOP_S:.0f} s of being cancelled")
    finally:
        signal.signal(signal.SIGINT, before)
    ended = conversation.ended or Ended("error", "the turn ended without saying how")
    if why and ended.reason == "cancelled":
        ended.reason = why
    return ended


def _over(limits: Limits, seconds: float, item: Item) -> str:
    """Which limit is passed, if any."""
    if limits.seconds is not None and seconds > limits.seconds:
        return "timeout"
    update = item.params.get("update") or {}
    if limits.cost is not None and update.get("sessionUpdate") == "usage_update":
        spent = (update.get("cost") or {}).get("amount")
        if spent is not None and spent > limits.cost:
            return "max_cost"
    return ""
