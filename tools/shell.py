"""Run commands in the workspace's persistent, confined shell."""

import asyncio
from pathlib import Path
from typing import ClassVar, Final

from pydantic import Field

from tools.errors import ErrorClass, InvalidArguments, OutsideWorkspace
from tools.files import stat
from tools.job_view import unread
from tools.result import Proposal, ToolResult
from tools.sandbox.policy import SandboxDied
from tools.shell_command import End, Outcome
from tools.shell_job import Job
from tools.shell_session import ShellSession
from tools.text import shortened
from tools.tool import Arguments, Kind, Progress, Tool
from tools.workspace import Workspace

__all__ = ["Shell", "ShellArguments", "ShellSession"]

DEFAULT_TIMEOUT_S: Final = 120.0
MAX_TIMEOUT_S: Final = 3600.0
_FIRST_LOOK_S: Final = 0.3
_REPORTED_SURVIVORS: Final = 10


class ShellArguments(Arguments):
    command: str = Field(description="What to run, in bash; may be several lines.", min_length=1)
    timeout_s: float | None = Field(
        default=None,
        gt=0,
        le=MAX_TIMEOUT_S,
        description="Seconds until it is killed (default 120, at most 3600).",
    )
    background: bool = Field(
        default=False,
        description="Start it as a job and return at once; see shell_read, shell_send and shell_kill.",
    )
    tty: bool = Field(
        default=False,
        description="Give it a terminal: for programs that insist on one, and, with `background`, for those "
        "that ask questions (answer with shell_send).",
    )
    cwd: str | None = Field(
        default=None,
        description="Folder of the workspace to run this one command in (default: where cd left off).",
    )


class Shell(Tool):
    """Run a command in bash, in the workspace, and see what it prints.

    The shell lasts: its folder, variables and functions carry over to the next call. Commands are confined:
    they can change only the workspace, /tmp and the home, which is empty apart from tools; there is no
    network unless it was allowed. Standard input is empty, so nothing can ask questions: pass answers as
    arguments. Everything a command started is killed at its deadline. What it leaves running with `&` is
    reported and lives on; redirect its output to a file, or start it with `background`.
    Long output is shown from both ends, with the path of the whole. `.git/config` and hooks are read-only.
    Use `read`, `grep` and `edit` for files rather than cat, grep and sed.
    """

    name: ClassVar[str] = "shell"
    kind: ClassVar[Kind] = "execute"
    Arguments = ShellArguments

    async def propose(self, arguments: ShellArguments, workspace: Workspace) -> Proposal:
        folder = _folder(arguments.cwd, workspace.root)
        if "\0" in arguments.command:
            raise InvalidArguments("The command contains a NUL character, which no shell can run.")
        first = arguments.command.strip().split("\n", 1)[0]
        paths = (folder.relative_to(workspace.root).as_posix(),) if folder is not None else ()
        return Proposal(title=shortened(first, 80), paths=paths, command=arguments.command)

    async def run(self, arguments: ShellArguments, workspace: Workspace, progress: Progress) -> ToolResult:
        folder = _folder(arguments.cwd, workspace.root)
        session = ShellSession.of(workspace)
        if arguments.background:
            return await self._background(session, workspace, arguments, folder)
        try:
            outcome = await session.run(
                arguments.command,
                timeout_s=arguments.timeout_s or DEFAULT_TIMEOUT_S,
                cwd=folder,
                tty=arguments.tty,
                progress=progress,
            )
        except SandboxDied as error:
            raise SandboxDied(f"{error.message} Nothing of this command ran; call it again.") from error
        return ToolResult(
            text=_report(outcome, arguments.timeout_s or DEFAULT_TIMEOUT_S),
            full=outcome.full,
            data={
                "exit_code": outcome.exit_code,
                "cwd": outcome.cwd,
                "duration_ms": outcome.duration_ms,
                "tier": outcome.tier,
                "truncated": outcome.clipped,
                "bytes": outcome.size,
                "timed_out": outcome.ended == "timeout",
                "ended": outcome.ended,
                "state_lost": outcome.state_lost,
                "survivors": outcome.survivors,
                "notices": outcome.notices,
            },
            error=_ERRORS.get(outcome.ended),
        )

    async def _background(
        self, session: ShellSession, workspace: Workspace, arguments: ShellArguments, folder: Path | None
    ) -> ToolResult:
        job = await session.background(arguments.command, cwd=folder, tty=arguments.tty)
        await asyncio.wait((job.ended,), timeout=_FIRST_LOOK_S)
        await job.settle()
        text, clipped = unread(job, workspace.output_limit)
        data = {
            "job": job.id,
            "running": job.running,
            "exit_code": job.exit_code,
            "duration_ms": job.duration_ms,
            "tier": job.tier,
            "truncated": clipped,
            "bytes": job.output.bytes,
            "output": job.where,
            "pid": job.inner_pid,
        }
        return ToolResult(text=_job_report(job, text), data=data)


_ERRORS: Final[dict[End, ErrorClass]] = {
    "timeout": "timeout",
    "input": "environment",
    "memory": "environment",
    "died": "environment",
    "cancelled": "aborted",
}


def _folder(cwd: str | None, root: Path) -> Path | None:
    """Where to run.

    Raises:
        OutsideWorkspace: the folder, with its links followed, is not in the workspace.
        InvalidArguments: it does not exist.
    """
    if cwd is None:
        return None
    if "\0" in cwd:
        raise InvalidArguments("cwd contains a NUL character.")
    try:
        found = stat(root, cwd)
    except OutsideWorkspace as error:
        message = f"cwd {cwd!r} leads outside the workspace; give a folder of it."
        raise OutsideWorkspace(message) from error
    if found is None or found.kind != "directory":
        raise InvalidArguments(f"cwd {cwd!r} is not a folder of the workspace.")
    return root / found.path


def _report(outcome: Outcome, timeout_s: float) -> str:
    """What the model reads: the output, then one line of facts, then what is unusual."""
    facts = [f"exit {outcome.exit_code}" if outcome.exit_code is not None else "killed"]
    facts.append(_seconds(outcome.duration_ms))
    if outcome.cwd_changed:
        facts.append(f"now in {outcome.cwd}")
    lines = [f"[{' · '.join(facts)}]"]
    reasons = {
        "timeout": f"It did not finish within {timeout_s:g} s: it and all it started were killed.",
        "input": "It waited for input, which cannot be given here, and was interrupted. Pass the answer as "
        "an argument, a file or a pipe.",
        "memory": "It was killed: it used more memory than the sandbox may.",
        "died": "The sandbox ended under it; the next command starts a new one.",
        "cancelled": "It was cancelled.",
    }
    if outcome.ended in reasons:
        lines.append(reasons[outcome.ended])
    if outcome.state_lost and outcome.ended != "died":
        lines.append("The shell itself ended and was started afresh: variables, functions and cd are lost.")
    if outcome.survivors:
        shown = outcome.survivors[:_REPORTED_SURVIVORS]
        names = ", ".join(f"{item['pid']} {item['command']}".strip() for item in shown)
        more = len(outcome.survivors) - len(shown)
        lines.append(f"Still running: {names}{f' and {more} more' if more else ''}")
    lines += outcome.notices
    return _joined(outcome.text, lines)


def _job_report(job: Job, text: str) -> str:
    if job.running:
        head = (
            f"[job {job.id} runs in the background · pid {job.inner_pid} · its output grows in {job.where}]"
        )
    else:
        head = f"[job {job.id} ended at once · exit {job.exit_code} · {_seconds(job.duration_ms)}]"
    return _joined(text, [head])


def _joined(text: str, lines: list[str]) -> str:
    body = text if text.endswith("\n") or not text else text + "\n"
    return (body or "(no output)\n") + "\n".join(lines)


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"
