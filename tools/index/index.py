"""The index of one workspace, as tools see it."""

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tools.index.indexer import Indexer
from tools.index.schema import database_of, open_for_reading
from tools.index.state import State

if TYPE_CHECKING:
    from tools.index.parsing import Parsed
    from tools.workspace import Workspace

REFRESH_S: Final = 2.0
"""The longest a query waits for changes to be indexed; after that it says what may be missing."""


class Index:
    """What is where in the files of a workspace. Nothing happens until it is first asked.

    Reading goes through `connect` in a thread of the caller; all writing is the child's.
    """

    def __init__(self, root: Path, database: Path, indexer: Indexer) -> None:
        self.root, self.database, self.indexer = root, database, indexer
        # What readers keep in memory between queries, each under its name.
        self.views: dict[str, object] = {}

    @classmethod
    def of(cls, workspace: "Workspace") -> "Index":
        """The index of a workspace, made when first asked for.

        It lies in `workspace.cache`, or in a temporary folder until the workspace is closed. The child is
        that of `workspace.indexer`, or one of its own.
        """
        if workspace.index is None:
            if workspace.indexer is None:
                workspace.indexer = Indexer()
                workspace.owns_indexer = True
            folder = workspace.cache or workspace.indexer.temporary()
            workspace.indexer.use(workspace.root)
            workspace.index = cls(workspace.root, database_of(workspace.root, folder), workspace.indexer)
        return workspace.index

    @property
    def state(self) -> State:
        """As last heard from the child; nothing is waited for."""
        return self.indexer.state(self.root)

    async def ready(self, timeout_s: float = REFRESH_S) -> State:
        """Start indexing if need be, and wait until it is done, or for so long."""
        return await self.refresh(None, timeout_s)

    async def refresh(self, paths: Iterable[str] | None = None, timeout_s: float = REFRESH_S) -> State:
        """Bring changed files up to date: those of `paths` (workspace-relative), or whatever has changed.

        Never raises for want of time: the state then says `warming`, and the child goes on.
        """
        return await self.indexer.refresh(
            self.root, self.database, None if paths is None else tuple(paths), timeout_s
        )

    async def parse(self, path: str, data: bytes, timeout_s: float = REFRESH_S) -> "Parsed | None":
        """Definitions and syntax errors of a text that need not be on disk; None where its language is
        unknown, it is over 1 MB, or the parser does not manage it."""
        return await self.indexer.parse(path, data, timeout_s)

    def connect(self) -> sqlite3.Connection:
        """A read-only connection for one thread at a time; the caller closes it. Costs under a millisecond.

        Raises:
            EnvironmentFault: nothing is indexed yet.
        """
        return open_for_reading(self.database)

    async def close(self) -> None:
        await self.indexer.forget(self.root)
