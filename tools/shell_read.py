"""The `shell_read` tool: what a background job printed since it was last read."""

from typing import ClassVar, Final

from pydantic import Field

from tools import job_view
from tools.result import Proposal, ToolResult
from tools.tool import Arguments, Kind, Progress, Tool
from tools.workspace import Workspace

MAX_WAIT_S: Final = 600.0


class ShellReadArguments(Arguments):
    job: str = Field(description="Id of the job, as `shell` gave it.")
    wait_s: float | None = Field(
        default=None,
        ge=0,
        le=MAX_WAIT_S,
        description="Seconds to wait for it to end or to ask for input (default 0, at most 600).",
    )


class ShellRead(Tool):
    """See what a background job printed since it was last read, and whether it still runs.

    With `wait_s` the answer comes when the job ends, waits for input at its terminal, or the time is over.
    """

    name: ClassVar[str] = "shell_read"
    kind: ClassVar[Kind] = "read"
    read_only: ClassVar[bool] = True
    Arguments = ShellReadArguments

    async def propose(self, arguments: ShellReadArguments, workspace: Workspace) -> Proposal:
        job = job_view.find(workspace, arguments.job)
        return Proposal(f"Read job {job.id}: {job_view.title(job)}")

    async def run(
        self, arguments: ShellReadArguments, workspace: Workspace, progress: Progress
    ) -> ToolResult:
        job = job_view.find(workspace, arguments.job)
        waiting = await job_view.until_settled(job, arguments.wait_s or 0)
        return await job_view.view(job, workspace, waiting)
