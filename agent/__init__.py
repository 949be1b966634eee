"""The mind: the vocabulary of the log, the loop, the context, the model clients.

In-process use needs three names: `open_session`, `run_turn` and `ask`-functions of `agent.approval`.
They are loaded on first use, so that importing a part of this room does not load the whole.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent.inprocess import ask, open_session
    from agent.loop import run_turn

__all__ = ["ask", "open_session", "run_turn"]


def __getattr__(name: str) -> Any:
    if name == "run_turn":
        from agent.loop import run_turn

        return run_turn
    if name in ("ask", "open_session"):
        from agent import inprocess

        return getattr(inprocess, name)
    raise AttributeError(f"module 'agent' has no attribute {name!r}")
