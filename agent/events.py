"""The vocabulary of the log. Everything that happens in a session is one of these events.

An event is `{v, session_id, seq, ts, turn, step, type, data}`. `seq` starts at 1 and has no gaps within
a session; `ts` is integer microseconds UTC. A `Draft` is an event before the log has given it its
place. Readers keep and skip types they do not know.
"""

import time
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

VERSION: Final = 1

EventType = Literal[
    "session.created",
    "prompt",
    "turn.started",
    "generation",
    "text",
    "thought",
    "tool.call",
    "tool.output",
    "tool.result",
    "edit",
    "user_edit",
    "workspace",
    "approval.requested",
    "approval.resolved",
    "question",
    "todo",
    "summary",
    "checkpoint",
    "restored",
    "forked",
    "feedback",
    "config.changed",
    "queued",
    "steered",
    "turn.ended",
    "error",
]

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

Mode = Literal["plan", "ask", "auto", "full"]

BARRIERS: Final = frozenset(
    {"prompt", "queued", "steered", "approval.resolved", "checkpoint", "turn.ended", "session.created"}
)
"""Types that must survive a loss of power: their commit is an fsync."""


def printable(text: str) -> str:
    """A file's name as the log can hold it: bytes that are no UTF-8 are written as escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def now() -> int:
    """Integer microseconds UTC."""
    return time.time_ns() // 1000


class Record(BaseModel):
    """The data of one event type. Unknown fields are kept: a newer writer may know more."""

    model_config = ConfigDict(extra="allow")


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
    log-probs at the sampling temperature (fp32), all of length n. `routes` names a blob (MoE only).
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
    steered: list[int] = Field(default_factory=list)
    """Sequence numbers of the steering messages that its prompt took up, after the earlier messages."""


class Text(Record):
    """Part of a streamed message: `offset` counts characters (Unicode code points) from its start."""

    messageId: str
    offset: int
    text: str


class Thought(Text):
    pass


class ToolCall(Record):
    """A call that is about to be judged and run. `parse` says whether the model's text was a valid call."""

    call_id: str
    generation: str
    name: str
    kind: str = "other"
    read_only: bool = False
    arguments: dict[str, Any] | None = None
    raw: str = ""
    """The raw arguments, kept only where they could not be parsed."""
    parse: Literal["ok", "malformed", "unknown_tool", "invalid"] = "ok"
    group: int = 0
    """Calls of one group ran in parallel."""
    title: str = ""
    paths: list[str] = Field(default_factory=list)
    line: int | None = None


class ToolOutput(Record):
    """Live output of a running call; `offset` counts characters from the start of its output."""

    call_id: str
    offset: int
    text: str


class BlobRef(Record):
    hash: str
    size: int


class ToolResultData(Record):
    """What the model sees of a call (`text`), and what the log keeps of it.

    `synthetic` marks results that no tool wrote: denied, interrupted, repeated, cancelled.
    """

    call_id: str
    name: str
    text: str
    error: str | None = None
    """An error class of `tools.errors`, or None."""
    output: BlobRef | None = None
    seen: dict[str, str] = Field(default_factory=dict)
    data: dict[str, Any] = Field(default_factory=dict)
    started: int
    ended: int
    synthetic: Literal["denied", "interrupted", "repeated", "cancelled", "refused"] | None = None


class Edit(Record):
    """One file changed by a call; None = the file did not exist. `before`/`after` name true contents in the
    snapshot store, not blobs of the log."""

    call_id: str
    path: str
    before: BlobRef | None
    after: BlobRef | None
    mode: int | None = None
    diff: str
    """Unified diff for people; empty for binary content."""
    added: int = 0
    removed: int = 0


class UserEdit(Record):
    """One file that somebody other than this session changed. `before`/`after` as in `Edit`."""

    path: str
    before: BlobRef | None
    after: BlobRef | None
    mode: int | None = None
    diff: str = ""
    """Unified diff for people, perhaps cut; empty for binary or large content."""
    added: int = 0
    removed: int = 0


CheckpointReason = Literal["prompt", "user", "step", "end", "restore"]
"""At a prompt's start; before commands, where a person changed something; after a step; at the end of a turn
that was broken off; after something was taken back."""


class Checkpoint(Record):
    """The state of the workspace's files, kept in the snapshot store under `tree`.

    Where none could be taken, `tree` is the last known one, and `partial` says why; it also says so where
    there was no time or room for everything.
    """

    tree: str | None
    reason: CheckpointReason
    files: int = 0
    bytes: int = 0
    left_out: list[dict[str, Any]] = Field(default_factory=list)
    """`{reason, count, examples}` of what the snapshot does not cover."""
    took_ms: float = 0.0
    cpu_ms: float = 0.0
    git: dict[str, Any] | None = None
    """`{head, commit, branches}` of the workspace's repository."""
    partial: str | None = None
    accounted: bool = False
    """All that the agent changed since the last checkpoint is in `edit` events."""
    user_edits: int = 0
    """Files that somebody else changed since the last checkpoint; the first have `user_edit` events."""


class Restored(Record):
    """Files were brought back. `before` is the state they had, `tree` the state after."""

    what: Literal["undo", "restore"]
    target: dict[str, Any]
    before: str
    tree: str
    changed: list[str] = Field(default_factory=list)
    kept: list[dict[str, str]] = Field(default_factory=list)
    """`{path, why}` of what was left as it is."""
    conflicts: list[dict[str, Any]] = Field(default_factory=list)
    """`{path, line, why}` of what could not be decided and stays."""


class WorkspaceState(Record):
    """Facts about the workspace at a prompt's start: git state and environment fingerprint."""

    git: dict[str, Any] | None = None
    environment: dict[str, Any] = Field(default_factory=dict)


class ApprovalRequested(Record):
    request_id: str
    call_id: str
    title: str
    kind: str
    options: list[dict[str, str]]
    """ACP permission options: `{optionId, name, kind}`."""
    diffs: list[dict[str, Any]] = Field(default_factory=list)
    """`{path, old, new}` texts of the proposed change."""
    command: str | None = None
    reason: str | None = None
    """Why it is asked, for people."""
    parts: list[dict[str, Any]] = Field(default_factory=list)
    """The simple commands of `command`, each judged: `{text, verdict, reason?, rule?}`."""
    rules: list[str] = Field(default_factory=list)
    """The rules that an `always` answer makes."""


class ApprovalResolved(Record):
    request_id: str
    call_id: str
    outcome: Literal["allowed", "denied", "cancelled"]
    option: str | None = None
    by: str | None = None
    """Who answered: a client's name, `mode`, `rule` or `headless`."""
    rules: list[str] = Field(default_factory=list)
    """The rules that an `always` answer made for this person and workspace: `shell:` and the first words of a
    simple command, or the name of a tool."""
    reason: str | None = None


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


RECORDS: Final[dict[str, type[Record]]] = {
    "session.created": SessionCreated,
    "prompt": Prompt,
    "turn.started": TurnStarted,
    "generation": Generation,
    "text": Text,
    "thought": Thought,
    "tool.call": ToolCall,
    "tool.output": ToolOutput,
    "tool.result": ToolResultData,
    "edit": Edit,
    "user_edit": UserEdit,
    "checkpoint": Checkpoint,
    "restored": Restored,
    "workspace": WorkspaceState,
    "question": QuestionAsked,
    "todo": Todo,
    "approval.requested": ApprovalRequested,
    "approval.resolved": ApprovalResolved,
    "config.changed": ConfigChanged,
    "queued": Queued,
    "steered": Steered,
    "feedback": Feedback,
    "turn.ended": TurnEnded,
    "error": ErrorData,
}
"""The data model of each type that is written today; the other types are reserved by `EventType`."""


class Draft(BaseModel):
    """An event before the log has placed it. `blobs` are stored in the same transaction."""

    model_config = ConfigDict(frozen=True)

    type: str
    data: dict[str, Any]
    turn: int = 0
    step: int = 0
    ts: int = Field(default_factory=now)
    blobs: dict[str, bytes] = Field(default_factory=dict, repr=False)


class Event(BaseModel):
    """One stored record of the log."""

    model_config = ConfigDict(frozen=True)

    v: int = VERSION
    session_id: str
    seq: int
    ts: int
    turn: int
    step: int
    type: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """Characters on their way to the log: shown at once, stored as `text`, `thought` or `tool.output`.

    `message_id` is the call id for tool output. `offset` counts characters from the message's start.
    A plain dataclass: one is made for every delta of a model.
    """

    session_id: str
    type: Literal["text", "thought", "tool.output"]
    message_id: str
    offset: int
    text: str


def draft(
    type: EventType, record: Record, *, turn: int = 0, step: int = 0, blobs: dict[str, bytes] | None = None
) -> Draft:
    """A draft whose data is a checked record of its type."""
    expected = RECORDS[type]
    if not isinstance(record, expected):
        raise TypeError(f"expected {expected.__name__} for {type!r}, got {record.__class__.__name__}")
    return Draft(
        type=type, data=record.model_dump(exclude_none=True), turn=turn, step=step, blobs=blobs or {}
    )
