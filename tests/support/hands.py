"""The shell tool as an agent uses it, and what a test wants to know about its sandbox."""

import json
from collections.abc import Callable

from tools.result import ToolResult
from tools.sandbox import SandboxPolicy, processes
from tools.shell import Shell, ShellSession
from tools.workspace import Workspace

EIGHT = """
sleep {0} & setsid sleep {0} & (setsid setsid sleep {0} &) ; nohup sleep {0} >/dev/null 2>&1 &
env -i sleep {0} & (setsid env -i sleep {0} &) ; (trap '' TERM INT; sleep {0}; sleep {0}) & sleep {0}
"""


class Hands:
    """Calls the tool as the agent does: JSON arguments in, a result out."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.root = workspace.root
        self.live: list[str] = []

    async def __call__(self, command: str, **arguments: object) -> ToolResult:
        parsed = Shell.parse(json.dumps({"command": command, **arguments}))
        return await Shell().run(parsed, self.workspace, self.live.append)

    @property
    def session(self) -> ShellSession:
        assert self.workspace.shell is not None
        return self.workspace.shell

    async def inside(self) -> list[int]:
        """Processes in the sandbox that are not ours."""
        sandbox = await self.session.sandbox()
        shell = sandbox.shell()
        below = processes.descendants(sandbox.init, without=sandbox.own())
        below += processes.descendants(shell) if shell is not None else []
        return [pid for pid in below if processes.identify(pid) is not None]


Opener = Callable[[SandboxPolicy], Hands]
