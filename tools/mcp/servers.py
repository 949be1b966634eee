"""The MCP servers of one session: connected beside everything else, their tools taken as they come."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from tools.errors import ToolError
from tools.mcp.connection import McpConnection
from tools.mcp.spec import McpSpec
from tools.mcp.tool import offered
from tools.tool import Tool

log = logging.getLogger(__name__)


class McpServers:
    """`begin` starts connecting; `tools` waits for a while and gives what is there.

    `proposed` are servers that start only once it was decided (`undecided`, `decide`).
    """

    def __init__(self, specs: Sequence[McpSpec], root: Path, proposed: Sequence[McpSpec] = ()) -> None:
        self._root = root.as_uri()
        self._connections = [McpConnection(spec, self._root) for spec in _distinct(specs)]
        taken = {connection.spec.prefix for connection in self._connections}
        self._proposed = [spec for spec in _distinct(proposed) if spec.prefix not in taken]
        self._tasks: dict[str, asyncio.Task[dict[str, Tool]]] = {}
        self._told: set[str] = set()

    def begin(self) -> None:
        """Start connecting to those that are not connected. Call it on the event loop."""
        for connection in self._connections:
            name = connection.spec.name
            if name not in self._tasks:
                self._tasks[name] = asyncio.create_task(_connect(connection), name=f"mcp start {name}")

    def undecided(self) -> list[McpSpec]:
        """Servers that somebody has to decide about before they start."""
        return list(self._proposed)

    def decide(self, spec: McpSpec, allowed: bool) -> None:
        """Let a proposed server start, or forget it for this session."""
        self._proposed.remove(spec)
        if allowed:
            self._connections.append(McpConnection(spec, self._root))

    async def tools(self, wait_s: float) -> tuple[dict[str, Tool], list[str]]:
        """The tools of every server that is connected by then, in the order the servers were named; and,
        once each, what went wrong with the others."""
        self.begin()
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=wait_s)
        found: dict[str, Tool] = {}
        problems: list[str] = []
        for name, task in self._tasks.items():
            if not task.done():
                self._tell(
                    problems, f"MCP server {name!r} is not ready yet; its tools come with a later turn."
                )
            elif (error := task.exception()) is None:
                found.update(task.result())
            else:
                message = (
                    error.message if isinstance(error, ToolError) else f"{type(error).__name__}: {error}"
                )
                self._tell(problems, message)
        return found, problems

    def _tell(self, problems: list[str], message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            problems.append(message)

    async def close(self) -> None:
        """End every connection and every program."""
        for task in self._tasks.values():
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks.values())
        await asyncio.gather(*(connection.close() for connection in self._connections))


async def _connect(connection: McpConnection) -> dict[str, Tool]:
    return offered(connection, await connection.start())


def _distinct(specs: Sequence[McpSpec]) -> list[McpSpec]:
    """Of servers with one name (as tools carry it) the last one counts."""
    return list({spec.prefix: spec for spec in specs}.values())
