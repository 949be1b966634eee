"""What turns messages into the ids of one model family."""

from collections.abc import Sequence
from typing import Any, Protocol

Message = dict[str, Any]


class Renderer(Protocol):
    """Messages (chat-completions format) to ids. `extend` gives only what is new, so ids are appended to."""

    end_ids: frozenset[int]
    """Ids that end an answer."""

    def fresh(self, messages: Sequence[Message], tools: Sequence[Message]) -> list[int]:
        """The whole prompt, up to and with the opening of the answer."""
        ...

    def extend(
        self, before: Sequence[Message], new: Sequence[Message], tools: Sequence[Message], ended: bool
    ) -> list[int] | None:
        """What follows a sampled answer: its end (its end token too, unless the model drew it: `ended`), the
        `new` messages, and the opening of the next answer.

        `before` are the messages so far, the answer included. None = this cannot be said by appending.
        """
        ...

    def unanswered(self, prompt: Sequence[int], new: Sequence[Message]) -> list[int] | None:
        """A prompt whose answer was dropped, gone on with `new` instead, up to the next opening; or None."""
        ...

    def call(self, name: str, arguments: dict[str, Any]) -> list[int] | None:
        """An answer that is this tool call and ends. None = not known how for this family."""
        ...
