"""The one interface to a model, whoever runs it.

Messages are in the chat-completions format (`role`, `content`, `tool_calls`, `tool_call_id`): the
neutral form that every implementation renders for its own engine.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from agent.events import Call, TokenTrace, Usage


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. None = the engine's default."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """The set parameters, as the log keeps them."""
        fields = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": self.max_tokens,
            "seed": self.seed,
            "stop": list(self.stop) or None,
        }
        return {key: value for key, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Request:
    """One generation to be made. `session_id` lets an engine that owns its tokens extend those it knows."""

    session_id: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    sampling: Sampling = field(default_factory=Sampling)
    purpose: Literal["step", "summary"] = "step"
    """A summary is sent the tools of the steps before it, so that its prompt begins like theirs."""
    made: int | None = None
    """How many generations of this purpose the session has already; None = not said."""


@dataclass(frozen=True, slots=True)
class Delta:
    """Characters as they come."""

    kind: Literal["text", "thought"]
    text: str


@dataclass(frozen=True, slots=True)
class Retry:
    """The request failed before anything was streamed, and is made again after `wait_s` seconds."""

    attempt: int
    wait_s: float
    message: str


@dataclass(frozen=True, slots=True)
class Completion:
    """A finished generation. `calls` hold the raw argument text, malformed or not.

    `tokens` carries ids and log-probs where the engine gives them; `prompt_ids` the exact prompt tokens.
    `finish` is `stop`, `tool_calls`, `length`, `cancelled` or the provider's own word.
    """

    text: str
    thought: str
    calls: list[Call]
    finish: str
    usage: Usage
    request_id: str | None = None
    tokens: TokenTrace | None = None
    prompt_ids: list[int] | None = None
    routes: bytes | None = None
    """Of a model with experts: a NumPy file, int16 `[prompt + completion - 1, MoE layers, k]`."""
    grammar: bool = False
    retries: int = 0
    sampling: dict[str, Any] | None = None
    """The parameters as they were sent, where a client's settings add to those of the request."""


Chunk = Delta | Retry | Completion
"""What `sample` yields: any number of deltas and retries, then exactly one completion, last."""


class ModelError(Exception):
    """The model could not answer. `message` is for people: what happened and what to do."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.retryable = retryable


class ContextOverflow(ModelError):
    """The prompt does not fit the model's window."""


class ModelStalled(ModelError):
    """The endpoint accepted the request and then sent nothing for too long."""


class ModelClient(Protocol):
    """A model that can be sampled. Cancelling the consumer stops the generation at once."""

    name: str
    """As given to `--model`, e.g. `openai:gpt-5` or `local`."""
    policy: str | None
    """Policy version `NAME@N`, or None for hosted models."""
    context_window: int
    """Tokens that prompt and completion share."""
    profile: Literal["full", "compact"]
    """The tool profile that suits this model unless the user says otherwise."""
    price: "Price | None"

    def sample(self, request: Request) -> AsyncGenerator[Chunk, None]: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens."""

    input: float = 0.0
    cached: float | None = None
    output: float = 0.0

    def cost(self, usage: Usage) -> float | None:
        """Dollars of one generation; None when the provider reported no usage."""
        if usage.input is None or usage.output is None:
            return None
        cached = usage.cached or 0
        cached_price = self.input if self.cached is None else self.cached
        fresh = (usage.input - cached) * self.input
        return (fresh + cached * cached_price + usage.output * self.output) / 1e6
