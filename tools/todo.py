"""The `todo` tool: the agent's own list of what is to be done, shown to the user."""

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from tools.errors import InvalidArguments
from tools.result import Proposal, ToolResult
from tools.tool import Arguments, Kind, Progress, Tool
from tools.workspace import Workspace

MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]", "cancelled": "[-]"}


def _said(text: str) -> str:
    text = " ".join(text.split())
    if not text:
        raise ValueError("must say what is to be done")
    return text


class TodoItem(Arguments):
    content: Annotated[str, AfterValidator(_said)] = Field(
        description="What is to be done, in a few words.", max_length=500
    )
    status: Literal["pending", "in_progress", "completed", "cancelled"]


class TodoArguments(Arguments):
    items: list[TodoItem] = Field(
        description="The whole list, in order; it replaces the one before. Empty clears it.", max_length=100
    )


class Todo(Tool):
    """Keep a list of what is to be done, where a task has several parts. The user sees it.

    Send the whole list each time. Have one item in progress, and complete it before the next one begins.
    """

    name: ClassVar[str] = "todo"
    kind: ClassVar[Kind] = "think"
    read_only: ClassVar[bool] = True
    Arguments = TodoArguments

    async def propose(self, arguments: TodoArguments, workspace: Workspace) -> Proposal:
        if repeated := _repeated(arguments.items):
            raise InvalidArguments(f"{repeated!r} is on the list twice; name each thing once.")
        return Proposal(_summary(arguments.items))

    async def run(self, arguments: TodoArguments, workspace: Workspace, progress: Progress) -> ToolResult:
        lines = [f"{MARKS[item.status]} {item.content}" for item in arguments.items]
        items = [item.model_dump() for item in arguments.items]
        text = "\n".join([_summary(arguments.items), *lines])
        return ToolResult(text=text, data={"todos": items})


def _repeated(items: list[TodoItem]) -> str | None:
    seen: set[str] = set()
    for item in items:
        if item.content in seen:
            return item.content
        seen.add(item.content)
    return None


def _summary(items: list[TodoItem]) -> str:
    if not items:
        return "The list is empty"
    wanted = [item for item in items if item.status != "cancelled"]
    done = sum(item.status == "completed" for item in wanted)
    return f"{done} of {len(wanted)} done"
