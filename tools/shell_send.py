"""The `shell_send` tool: types into the terminal of a background job."""

from typing import ClassVar, Final

from pydantic import Field

from tools import job_view
from tools.result import Proposal, ToolResult
from tools.text import shortened
from tools.tool import Arguments, Kind, Progress, Tool
from tools.workspace import Workspace

_LONGEST: Final = 4000
"""Characters; a terminal takes no more than 4 KiB that nobody has read."""
_LOOK_S: Final = 0.5


class ShellSendArguments(Arguments):
    job: str = Field(description="Id of a job that was started with tty=true.")
    text: str = Field(
        description="What to type; end a line with \\n. \\u0003 interrupts, \\u0004 ends the input.",
        min_length=1,
        max_length=_LONGEST,
    )


class ShellSend(Tool):
    """Type into the terminal of a background job and see what it answers.

    Only a job that was started with `tty` reads what is typed.
    """

    name: ClassVar[str] = "shell_send"
    kind: ClassVar[Kind] = "execute"
    Arguments = ShellSendArguments

    async def propose(self, arguments: ShellSendArguments, workspace: Workspace) -> Proposal:
        job = job_view.find(workspace, arguments.job)
        shown = arguments.text.encode("unicode_escape").decode()
        title = f"Type into job {job.id}: {shortened(shown, 60)}"
        return Proposal(title, command=arguments.text)

    async def run(
        self, arguments: ShellSendArguments, workspace: Workspace, progress: Progress
    ) -> ToolResult:
        job = job_view.find(workspace, arguments.job)
        job.send(arguments.text)
        waiting = await job_view.until_answered(job, _LOOK_S)
        return await job_view.view(job, workspace, waiting)
