"""The `summarize` tool: the model says that it is time to go on from a summary."""

from typing import ClassVar

from tools.result import Proposal, ToolResult
from tools.tool import Arguments, Kind, Progress, Tool
from tools.workspace import Workspace


class SummarizeArguments(Arguments):
    """None."""


class Summarize(Tool):
    """Go on from a summary of this conversation: you are asked for it before your next step.

    It happens by itself when the context is nearly full. Call it where one piece of work is done and the next
    needs little of what led there.
    """

    name: ClassVar[str] = "summarize"
    kind: ClassVar[Kind] = "think"
    read_only: ClassVar[bool] = True
    Arguments = SummarizeArguments

    async def propose(self, arguments: SummarizeArguments, workspace: Workspace) -> Proposal:
        return Proposal("Summarize the conversation")

    async def run(
        self, arguments: SummarizeArguments, workspace: Workspace, progress: Progress
    ) -> ToolResult:
        return ToolResult("You will be asked for the summary now.")
