"""The mind: the vocabulary of the log, the loop, the context, the model clients.

A Python program needs the names below; they are loaded on first use, so that importing a part of this
room does not load the whole.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent.events import Event, Live
    from agent.inprocess import ask, open_session
    from agent.loop import run_turn

__all__ = ["Event", "Live", "ask", "open_session", "run_turn"]

_HOMES = {
    "Event": "agent.events",
    "Live": "agent.events",
    "ask": "agent.inprocess",
    "open_session": "agent.inprocess",
    "run_turn": "agent.loop",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'agent' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
