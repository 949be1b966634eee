"""From the state of a session to the next request, and to the record of exactly what was asked."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from agent.content import render
from agent.events import PromptRef
from agent.models.client import Request, Sampling
from agent.prompt_chain import Node, chain, restore, split
from agent.session import Session
from agent.state import State, Waiting


@dataclass(frozen=True, slots=True)
class Context:
    """A request and its record: `blobs` hold the part of the prompt that no earlier request stored."""

    request: Request
    node: Node
    blobs: dict[str, bytes]
    steered: list[int]
    """Sequence numbers of the steering messages that this request takes up."""

    @property
    def prompt(self) -> PromptRef:
        """What the log says of the prompt."""
        return PromptRef(
            node=self.node.hash,
            messages=len(self.request.messages),
            bytes=self.node.size,
            shared=self.node.shared,
        )


def items(
    state: State, steered: list[Waiting], messages: list[dict[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """The prompt as a list that grows at its end: system message, tools, then the conversation."""
    waiting = [{"role": "user", "content": render(item.text, item.blocks, item.editor)} for item in steered]
    head = [{"role": "system", "content": state.system or ""}, {"tools": state.tools or []}]
    return [*head, *(state.messages if messages is None else messages), *waiting]


async def build(
    session: Session,
    *,
    messages: list[dict[str, Any]] | None = None,
    max_tokens: int | None = None,
    purpose: Literal["step", "summary"] = "step",
) -> Context:
    """The next request of a session, and what it shares with the last stored one.

    `messages` takes the place of the conversation; steering messages then wait for the next step.
    """
    state, steered = session.state, list(session.state.steered) if messages is None else []
    if session.node is None and state.prompt_node is not None:
        with suppress(KeyError):  # prompts that were not kept (an import): this one is stored whole
            session.node = await restore(state.prompt_node, session.log.blob)
    prompt = items(state, steered, messages)
    node, blobs = chain(session.node, prompt)
    sent, tools = split(prompt)
    return Context(
        request=Request(
            session_id=session.id,
            messages=sent,
            tools=tools,
            sampling=Sampling(max_tokens=max_tokens or session.max_output),
            purpose=purpose,
            made=state.made.get(purpose, 0),
        ),
        node=node,
        blobs=blobs,
        steered=[item.seq for item in steered],
    )
