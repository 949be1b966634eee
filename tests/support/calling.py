"""A workspace for tests of the tools, and one way to call a tool as the loop does."""

import json
from pathlib import Path
from typing import Any

from tools.result import ToolResult
from tools.sandbox.policy import SandboxPolicy
from tools.tool import Tool
from tools.workspace import Workspace, content_hash


def workspace(root: Path) -> Workspace:
    return Workspace(root.resolve(), SandboxPolicy())


def saw(place: Workspace, path: str) -> None:
    """The model has seen the file as it is on disk now."""
    place.seen[path] = content_hash((place.root / path).read_bytes())


async def call(tool: Tool, place: Workspace, **arguments: Any) -> ToolResult:
    """Parse, propose, run. Raises what the tool raises."""
    parsed = tool.parse(json.dumps(arguments))
    await tool.propose(parsed, place)
    return await tool.run(parsed, place, lambda text: None)


def tree(root: Path) -> dict[str, bytes]:
    """Every regular file below a folder with its content."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }
