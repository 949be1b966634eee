"""A workspace: one folder of a real repository and the hands' view of it."""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tools.diagnostics.memory import Memory

if TYPE_CHECKING:
    from tools.ask import AskUser
    from tools.history import History
    from tools.index import Index
    from tools.index.indexer import Indexer
    from tools.sandbox.policy import SandboxPolicy
    from tools.shell import ShellSession
    from tools.snapshots import SnapshotStore


def content_hash(data: bytes) -> str:
    """blake2b-160 of the bytes, as 40 hex digits: the name of content everywhere in Etude."""
    return hashlib.blake2b(data, digest_size=20).hexdigest()


@dataclass(frozen=True, slots=True)
class Buffer:
    """An editor's unsaved text of a file; it wins over the file on disk."""

    text: str
    version: int | None = None


WriteThrough = Callable[[str, str], Awaitable[None]]
"""Writes `(relative path, whole new text)` through the editor that holds an unsaved buffer of it."""

Refresh = Callable[[str], Awaitable[None]]
"""Asks the editors for the text they show of a path, and puts what differs from disk into `buffers`."""


@dataclass(slots=True)
class Workspace:
    """One folder, absolute and resolved.

    `seen` holds, per relative path, the hash of the content the model last saw: edits compare and swap
    on it. It is a fold of the log; whoever opens a session fills it. `shell` is started on first use.
    `output_limit` bounds what one result shows (bytes): small models have little room. `index` is made by
    `Index.of`; it lies below `cache`, or in a temporary folder. `indexer` is the process that feeds it,
    shared by all workspaces of a server; without one the workspace starts its own. `history` knows what the
    present turn began from, `diagnosed` what checkers said of which snapshot. `snapshots` is where its
    states and the true contents of edits are kept; without it none are.
    """

    root: Path
    policy: "SandboxPolicy"
    seen: dict[str, str] = field(default_factory=dict)
    buffers: Mapping[str, Buffer] = field(default_factory=dict)
    write_through: WriteThrough | None = None
    refresh: Refresh | None = None
    ask: "AskUser | None" = None
    shell: "ShellSession | None" = None
    output_limit: int = 48 * 1024
    history: "History | None" = None
    diagnosed: Memory = field(default_factory=Memory)
    cache: Path | None = None
    index: "Index | None" = None
    indexer: "Indexer | None" = None
    owns_indexer: bool = False
    snapshots: "SnapshotStore | None" = None

    async def close(self) -> None:
        """End the shell and everything that runs in its sandbox, and let go of the index."""
        if self.shell is not None:
            shell, self.shell = self.shell, None
            await shell.close()
        index, self.index = self.index, None
        if index is not None:
            await index.close()
        if self.owns_indexer and self.indexer is not None:
            indexer, self.indexer, self.owns_indexer = self.indexer, None, False
            await indexer.close()
