"""The event itself: which types there are, and the record of each."""

from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from agent.events.call import ApprovalRequested, ApprovalResolved, ToolCall, ToolOutput, ToolResultData
from agent.events.conversation import (
    ConfigChanged,
    Feedback,
    Prompt,
    QuestionAsked,
    Queued,
    SessionCreated,
    Steered,
    Summary,
    Todo,
)
from agent.events.record import Record, now
from agent.events.turn import ErrorData, Generation, Text, Thought, TurnEnded, TurnStarted
from agent.events.workspace import Checkpoint, Edit, Restored, UserEdit, WorkspaceState

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


BARRIERS: Final = frozenset(
    {"prompt", "queued", "steered", "approval.resolved", "checkpoint", "turn.ended", "session.created"}
)
"""Types that must survive a loss of power: their commit is an fsync."""


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
    "summary": Summary,
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
