"""What happens to the files of a workspace, whoever does it."""

from typing import Any, Literal

from pydantic import Field

from agent.events.record import BlobRef, Record


class Edit(Record):
    """One file changed by a call; None = the file did not exist. `before`/`after` name true contents in the
    snapshot store, not blobs of the log."""

    call_id: str
    path: str
    before: BlobRef | None
    after: BlobRef | None
    mode: int | None = None
    diff: str
    """Unified diff for people, perhaps cut; empty for binary content."""
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
