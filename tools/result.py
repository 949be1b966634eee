"""What a tool proposes before it acts and returns after it acted."""

from dataclasses import dataclass, field
from typing import Any

from tools.errors import ErrorClass


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file before and after a tool changed (or would change) it.

    `path` is relative to the workspace, POSIX. `before` is None for a new file, `after` is None for a
    deleted one. Bytes are the file's true content. `mode` is the permission bits after the change.
    """

    path: str
    before: bytes | None
    after: bytes | None
    mode: int | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a call is about to do, shown in the tool card and in the approval request."""

    title: str
    paths: tuple[str, ...] = ()
    line: int | None = None
    changes: tuple[FileChange, ...] = ()
    command: str | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call did.

    `text` is exactly what the model sees (already bounded and clean of control sequences).
    `full` is the whole output where `text` shows only a part of it; the log keeps it as a blob.
    `seen` maps workspace-relative paths to the content hash the model has now seen (see
    `tools.workspace.content_hash`). `data` holds structured facts for the log: exit code, tier, counts.
    """

    text: str
    changes: tuple[FileChange, ...] = ()
    full: bytes | None = None
    seen: dict[str, str] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    error: ErrorClass | None = None
