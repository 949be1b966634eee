"""What a summary says about a turn: the last message, the files changed, tokens and cost."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from server.terminal.conversation import Ended, Item


@dataclass(slots=True)
class Facts:
    """A fold over the items of a conversation."""

    text: str = ""
    """The last message of the agent."""
    changed: dict[str, None] = field(default_factory=dict)
    """Paths of edited files, in the order of their first edit."""
    used: int = 0
    window: int = 0
    cost: float | None = None
    """US dollars so far, where the model has a price."""
    _message: str = ""

    def take(self, item: Item) -> None:
        update: Mapping[str, Any] = item.params.get("update") or {} if item.kind == "update" else {}
        kind = update.get("sessionUpdate")
        if kind == "agent_message_chunk":
            message = str(update.get("messageId") or "")
            if message != self._message:
                self._message, self.text = message, ""
            self.text += text_of(update.get("content"))
        elif kind == "tool_call_update":
            for content in update.get("content") or []:
                if content.get("type") == "diff":
                    self.changed[str(content.get("path"))] = None
        elif kind == "usage_update":
            self.used, self.window = int(update.get("used") or 0), int(update.get("size") or 0)
            self.cost = (update.get("cost") or {}).get("amount")

    def changed_in(self, workspace: Path) -> list[str]:
        """Changed files, relative to the workspace where they lie in it."""
        paths = [Path(path) for path in self.changed]
        return [
            str(path.relative_to(workspace)) if path.is_relative_to(workspace) else str(path)
            for path in paths
        ]

    def summary(self, ended: Ended) -> str:
        """`3 steps · 4,100 tokens (92% cached) · $0.0123 · 2 files changed`, as far as it is known."""
        usage = ended.usage or {}
        prompt, hits = int(usage.get("input") or 0), usage.get("cached")
        tokens = prompt + int(usage.get("output") or 0)
        cached = f" ({round(100 * hits / prompt)}% cached)" if prompt and hits is not None else ""
        share = f"{100 * self.used // self.window}% of the window" if self.used and self.window else ""
        parts = [
            _count(ended.steps, "step") if ended.steps else "",
            f"{tokens:,} tokens{cached}" if tokens else "",
            share,
            f"${ended.cost:.4f}" if ended.cost is not None else "",
            f"{_count(len(self.changed), 'file')} changed" if self.changed else "",
        ]
        return " · ".join(part for part in parts if part)


def text_of(content: Any) -> str:
    """The text of one ACP content block; other kinds are named, so that nothing vanishes silently."""
    if not isinstance(content, dict):
        return ""
    if content.get("type") == "text":
        return str(content.get("text", ""))
    return f"[{content.get('name') or content.get('uri') or content.get('type') or 'content'}]"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
