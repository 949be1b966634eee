"""The vocabulary of the log. Everything that happens in a session is one of these events.

An event is `{v, session_id, seq, ts, turn, step, type, data}`. `seq` starts at 1 and has no gaps within
a session; `ts` is integer microseconds UTC. A `Draft` is an event before the log has given it its
place. Readers keep and skip types they do not know.
"""

from agent.events.call import (
    ApprovalRequested,
    ApprovalResolved,
    Parse,
    Synthetic,
    ToolCall,
    ToolOutput,
    ToolResultData,
)
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
from agent.events.event import BARRIERS, RECORDS, VERSION, Draft, Event, EventType, Live, draft
from agent.events.record import BlobRef, Mode, Record, now, printable
from agent.events.turn import (
    Call,
    EndReason,
    ErrorData,
    Generation,
    PromptRef,
    Text,
    Thought,
    TokenTrace,
    TurnEnded,
    TurnStarted,
    Usage,
)
from agent.events.workspace import Checkpoint, CheckpointReason, Edit, Restored, UserEdit, WorkspaceState

__all__ = [
    "BARRIERS",
    "RECORDS",
    "VERSION",
    "ApprovalRequested",
    "ApprovalResolved",
    "BlobRef",
    "Call",
    "Checkpoint",
    "CheckpointReason",
    "ConfigChanged",
    "Draft",
    "Edit",
    "EndReason",
    "ErrorData",
    "Event",
    "EventType",
    "Feedback",
    "Generation",
    "Live",
    "Mode",
    "Parse",
    "Prompt",
    "PromptRef",
    "QuestionAsked",
    "Queued",
    "Record",
    "Restored",
    "SessionCreated",
    "Steered",
    "Summary",
    "Synthetic",
    "Text",
    "Thought",
    "Todo",
    "TokenTrace",
    "ToolCall",
    "ToolOutput",
    "ToolResultData",
    "TurnEnded",
    "TurnStarted",
    "Usage",
    "UserEdit",
    "WorkspaceState",
    "draft",
    "now",
    "printable",
]
