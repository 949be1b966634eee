"""A turn and its generations: what the model was asked and what it wrote, exactly."""

from typing import Any, Literal

from pydantic import Field

from agent.events.record import Mode, Record

EndReason = Literal[
    "end_turn",
    "cancelled",
    "max_steps",
    "overlong",
    "timeout",
    "malformed",
    "model_error",
    "env_error",
    "interrupted",
]


class TurnStarted(Record):
    """`system` and `tools` are there when they differ from the last turn's (a new prefix begins)."""

    model: str
    policy: str | None = None
    mode: Mode
    profile: Literal["full", "compact"]
    max_steps: int
    system: str | None = None
    tools: list[dict[str, Any]] | None = None


class Usage(Record):
    """Tokens as the engine or the provider reported them, never estimated. None = not reported."""

    input: int | None = None
    cached: int | None = None
    output: int | None = None
    reasoning: int | None = None


class PromptRef(Record):
    """Where the exact prompt lies: a chain of blobs, each `{parent, items}`, shared between generations.

    `bytes` is the size of the serialised prompt, `shared` how many leading bytes of it are identical
    with the session's previous request, `messages` the number of messages.
    """

    node: str
    messages: int
    bytes: int
    shared: int


class TokenTrace(Record):
    """Token-exact record of a generation, where we own the engine (or the endpoint returned it).

    `prompt` names a blob chain of prompt ids, `completion` are the sampled ids, `logprobs` their
    log-probs at the sampling temperature (fp32), all of length n. `routes` names a NumPy file, int16
    `[prompt_length + n - 1, MoE layers, k]`: the experts of each consumed id, -1 = unknown (MoE only).
    """

    prompt: str | None = None
    prompt_length: int | None = None
    completion: list[int] | None = None
    logprobs: list[float] | None = None
    versions: list[int] | None = None
    routes: str | None = None
    context: Literal["start", "extend", "fork"] | None = None
    """How the prompt came about: `extend` = the last prompt and its sampled ids are its beginning; `fork` =
    earlier answers were tokenised anew from text; `start` = there were none."""


class Call(Record):
    """A tool call as the model wrote it: `arguments` is its raw text, even when malformed."""

    id: str
    name: str
    arguments: str
    provider_id: str | None = None
    """The id the provider gave it; `id` is ours and unique."""


class Generation(Record):
    """One model call: exact prompt, sampling, tokens, version, timings, usage, cost."""

    id: str
    message_id: str
    model: str
    policy: str | None = None
    request_id: str | None = None
    prompt: PromptRef
    sampling: dict[str, Any]
    grammar: bool = False
    text: str
    """The whole text the model wrote, as it stays in the context."""
    thought: str = ""
    calls: list[Call] = Field(default_factory=list)
    finish: str
    usage: Usage
    cost: float | None = None
    """US dollars, from the configured prices; None where no price is known."""
    tokens: TokenTrace | None = None
    started: int
    first_token: int | None = None
    ended: int
    retries: int = 0
    segment: int = 1
    """Which segment of the session its prompt belongs to; a `summary` event begins the next one."""
    purpose: Literal["step", "summary"] = "step"
    """What it was for: a step of the turn, or a request to summarise, whose answer is in no later prompt as
    it stands; the `summary` event that follows names it."""
    steered: list[int] = Field(default_factory=list)
    """Sequence numbers of the steering messages that its prompt took up, after the earlier messages."""


class Text(Record):
    """Part of a streamed message: `offset` counts characters (Unicode code points) from its start."""

    messageId: str
    offset: int
    text: str


class Thought(Text):
    pass


class TurnEnded(Record):
    reason: EndReason
    message: str | None = None
    steps: int = 0
    usage: Usage = Field(default_factory=Usage)
    cost: float | None = None


class ErrorData(Record):
    """Something went wrong and the session goes on (or the turn's end says it does not)."""

    where: Literal["model", "tool", "loop", "store", "sandbox"]
    error: str
    """A class of `tools.errors`, or `malformed_call`, `repeated_call`, `overflow`."""
    message: str
    call_id: str | None = None
    retry: int | None = None
