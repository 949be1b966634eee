"""The `shell_kill` tool: ends a background job and everything it started."""

from typing import ClassVar

from pydantic import Field

from tools import job_view
from tools.errors import EnvironmentFault
from tools.result import Proposal, ToolResult
from tools.shell_session import ShellSession
from tools.tool import Arguments, Kind, Progress, Tool
from tools.workspace import Workspace


class ShellKillArguments(Arguments):
    job: str = Field(description="Id of the job, as `shell` gave it.")


class ShellKill(Tool):
    """End a background job and everything it started."""

    name: ClassVar[str] = "shell_kill"
    kind: ClassVar[Kind] = "execute"
    read_only: ClassVar[bool] = True
    """It ends only what the agent itself started: nothing to approve."""
    Arguments = ShellKillArguments

    async def propose(self, arguments: ShellKillArguments, workspace: Workspace) -> Proposal:
        job = job_view.find(workspace, arguments.job)
        return Proposal(f"End job {job.id}: {job_view.title(job)}")

    async def run(
        self, arguments: ShellKillArguments, workspace: Workspace, progress: Progress
    ) -> ToolResult:
        job = job_view.find(workspace, arguments.job)
        if job.running and not await ShellSession.of(workspace).end(job):
            raise EnvironmentFault(
                f"Some processes of job {job.id} did not end. Look at them with `ps` in the shell."
            )
        return await job_view.view(job, workspace, waiting=False)
