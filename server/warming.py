"""An index is begun when a session opens, so that the first search of a turn finds it warm."""

import asyncio
from typing import Final

from tools.index import Index
from tools.workspace import Workspace

AFTER_S: Final = 0.5
"""What is asked of a session that opens is begun first."""


class Warming:
    """Owns what is begun. The work itself is that of the indexing process, which gives way to all others."""

    def __init__(self) -> None:
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def begin(self, workspace: Workspace) -> None:
        """Have a workspace indexed in a moment, unless it is ended before. Returns at once."""
        task = asyncio.create_task(_warm(workspace))
        self._tasks[id(workspace)] = task
        task.add_done_callback(lambda _: self._forget(workspace, task))

    def _forget(self, workspace: Workspace, task: asyncio.Task[None]) -> None:
        if self._tasks.get(id(workspace)) is task:
            del self._tasks[id(workspace)]

    async def end(self, workspace: Workspace) -> None:
        """The workspace is about to be closed."""
        if (task := self._tasks.pop(id(workspace), None)) is not None:
            task.cancel()
            await asyncio.wait({task})


async def _warm(workspace: Workspace) -> None:
    await asyncio.sleep(AFTER_S)
    await Index.of(workspace).ready(0)  # it goes on by itself
