"""What people say and set: prompts, settings, questions, opinions."""

from typing import Any, Literal

from pydantic import Field

from agent.events.record import Mode, Record


class SessionCreated(Record):
    workspace: str
    user_id: str
    model: str
    mode: Mode
    profile: Literal["full", "compact"]
    title: str | None = None
    parent_id: str | None = None
    fork_seq: int | None = None
    consent: str = "metrics"
    client: dict[str, Any] | None = None
    """Name and version of the client that opened it."""
    harness: dict[str, str] = Field(default_factory=dict)
    """Versions of Etude, of Python and of the tool schemas."""


class Prompt(Record):
    """What the user asked, as the model will see it. `queued_seq` names the `queued` event it came from."""

    message_id: str
    text: str
    blocks: list[dict[str, Any]] = Field(default_factory=list)
    """The ACP content blocks as received (text, resource links, embedded resources, images)."""
    editor: dict[str, Any] | None = None
    queued_seq: int | None = None
    max_steps: int | None = None
    """Bound on the model calls of this turn, where whoever asked set a lower one than the session's."""


class Queued(Record):
    message_id: str
    text: str
    blocks: list[dict[str, Any]] = Field(default_factory=list)
    editor: dict[str, Any] | None = None


class Steered(Record):
    """A message added to the running turn; the model sees it at its next step."""

    message_id: str
    text: str
    blocks: list[dict[str, Any]] = Field(default_factory=list)


class ConfigChanged(Record):
    mode: Mode | None = None
    model: str | None = None
    profile: Literal["full", "compact"] | None = None
    title: str | None = None
    revoked: list[str] = Field(default_factory=list)
    """Rules of this session's log that hold no more."""


class QuestionAsked(Record):
    """A question that the agent put to the user; the result of its call holds the answer."""

    text: str
    options: list[str] = Field(default_factory=list)


class Todo(Record):
    """The agent's list of what is to be done, whole; it replaces the one before."""

    call_id: str | None = None
    items: list[dict[str, str]]
    """`{content, status}`; status is `pending`, `in_progress`, `completed` or `cancelled`."""


Trigger = Literal["budget", "tool", "overflow"]
"""What a summary was made for: the share of the window was used up, the model asked, the model refused."""


class RefusedSummary(Record):
    """A summary that the model wrote and that was not taken."""

    generation: str
    reason: str


class Summary(Record):
    """A new segment begins: `messages` is its whole conversation, in the place of all that was there before.

    Token counts named `_before` and `_after` are estimates of the two prompts; `input` and `output` are what
    was reported for the request. In a `fallback` the model's own words are missing: the newest steps that fit
    are kept instead.
    """

    trigger: Trigger
    segment_before: int
    segment: int
    number: int
    """How many summaries the session has with this one."""
    generation: str | None = None
    """The generation that wrote `text`."""
    text: str = ""
    fallback: bool = False
    pruned: bool = False
    """The request to summarise left out part of the conversation, because the whole did not fit."""
    refused: list[RefusedSummary] = Field(default_factory=list)
    input: int | None = None
    output: int | None = None
    tokens_before: int
    tokens_after: int
    dropped: int = 0
    """Messages of the old segment that are not in the new one."""
    kept: int = 0
    """Messages of the old segment that are in the new one as they were, or shortened."""
    messages: list[dict[str, Any]]


class Feedback(Record):
    """What a person thinks of a hunk, a message or a turn. `target` names it, e.g. `{"turn": 3}`."""

    target: dict[str, Any]
    kind: Literal["accept", "reject", "undo", "thumbs_up", "thumbs_down", "comment"]
    comment: str | None = None
    user_id: str | None = None
