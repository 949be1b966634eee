"""ChatML for a model whose tools are chosen for it (`agent.models.routing`): short, and in plain words."""

from collections.abc import Sequence
from typing import Final

from agent.rendering.chatml import ChatML
from agent.rendering.renderer import Message

ASKED: Final = 400
"""Characters of the user's message that are said again after a result."""


class RoutedChatML(ChatML):
    """Tools are not described: such a model uses none by itself, and their schemas are most of its prompt.
    A result is followed by the question it should answer, which a small model has forgotten by then.
    """

    def _described(self, tools: Sequence[Message]) -> str:
        return ""

    def _returned(self, results: Sequence[tuple[str, str]], asked: str) -> str:
        parts = [f"The result of {name} is:\n\n{text}" for name, text in results]
        question = asked.split("\n\n", 1)[0][:ASKED]
        return "\n\n".join([*parts, f"Use this result to answer in one or two sentences: {question}"])
