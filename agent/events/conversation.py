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


class Feedback(Record):
    """What a person thinks of a hunk, a message or a turn. `target` names it, e.g. `{"turn": 3}`."""

    target: dict[str, Any]
    kind: Literal["accept", "reject", "undo", "thumbs_up", "thumbs_down", "comment"]
    comment: str | None = None
    user_id: str | None = None
