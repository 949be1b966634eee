"""A tool call: announced, approved, running, done."""

from typing import Any, Literal

from pydantic import Field

from agent.events.record import BlobRef, Record

Parse = Literal["ok", "malformed", "unknown_tool", "invalid"]
Synthetic = Literal["denied", "interrupted", "repeated", "cancelled"]
"""Why a result is there that no tool wrote."""


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
    parse: Parse = "ok"
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


class ToolResultData(Record):
    """What the model sees of a call (`text`), and what the log keeps of it."""

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
    synthetic: Synthetic | None = None


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
