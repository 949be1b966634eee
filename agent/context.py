"""From the state of a session to the next request, and to the record of exactly what was asked."""

from dataclasses import dataclass
from typing import Any

import orjson

from agent.content import render
from agent.events import PromptRef
from agent.models.client import Request, Sampling
from agent.prompt_chain import Node, chain
from agent.session import Session
from agent.state import State, Waiting


@dataclass(frozen=True, slots=True)
class Context:
    """A request and its record: `blobs` hold the part of the prompt that no earlier request stored."""

    request: Request
    prompt: PromptRef
    blobs: dict[str, bytes]
    steered: list[int]
    """Sequence numbers of the steering messages that this request takes up."""


def items(state: State, steered: list[Waiting]) -> list[dict[str, Any]]:
    """The prompt as a list that grows at its end: system message, tools, then the conversation."""
    waiting = [{"role": "user", "content": render(item.text, item.blocks, item.editor)} for item in steered]
    head = [{"role": "system", "content": state.system or ""}, {"tools": state.tools or []}]
    return [*head, *state.messages, *waiting]


def build(session: Session) -> Context:
    """The next request of a session, with what it shares with the previous one measured in bytes."""
    state, steered = session.state, list(session.state.steered)
    prompt = items(state, steered)
    serialised = [orjson.dumps(item) for item in prompt]
    previous = session.previous or _last_request(state)
    shared = _shared_bytes(previous, serialised)
    whole = sum(map(len, serialised))
    node, blobs = chain(Node(state.prompt_node, len(previous)), prompt, previous, serialised)
    session.previous = serialised
    messages = [prompt[0], *prompt[2:]]
    return Context(
        request=Request(
            session_id=session.id,
            messages=messages,
            tools=prompt[1]["tools"],
            sampling=Sampling(max_tokens=session.max_output),
        ),
        prompt=PromptRef(node=node, messages=len(prompt) - 2, bytes=whole, shared=shared),
        blobs=blobs,
        steered=[item.seq for item in steered],
    )


def _last_request(state: State) -> list[bytes]:
    """The last request's items, from the log alone: used for the first request after a session opens."""
    if state.prompt_node is None or not state.request_messages:
        return []
    return [orjson.dumps(item) for item in items(state, [])[: state.request_messages + 2]]


def _shared_bytes(previous: list[bytes], current: list[bytes]) -> int:
    shared = 0
    for left, right in zip(previous, current, strict=False):
        if left == right:
            shared += len(left)
            continue
        shared += next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), 0)
        break
    return shared
