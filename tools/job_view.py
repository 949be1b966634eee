"""A background job as the model sees it: found by its id, with what it printed since it was last read."""

import asyncio
from typing import Final

from tools.errors import InvalidArguments
from tools.excerpt import excerpt
from tools.output import clean
from tools.result import ToolResult
from tools.shell_job import Job
from tools.shell_session import ShellSession
from tools.text import shortened
from tools.workspace import Workspace

_ROUND_S: Final = 0.05


def find(workspace: Workspace, id: str) -> Job:
    """The job with this id.

    Raises:
        InvalidArguments: there is none; the message names those there are.
    """
    jobs = ShellSession.of(workspace).jobs
    job = jobs.get(id.strip().removeprefix("job "))
    if job is None:
        known = ", ".join(f"{other.id} ({other.command[:40]!r})" for other in jobs.values())
        raise InvalidArguments(
            f"There is no job {id[:40]!r}. {f'The jobs are: {known}.' if known else 'No job was started.'} "
            "Start one with `shell` and background=true; jobs end with their sandbox."
        )
    return job


def title(job: Job) -> str:
    """The beginning of its command, for the card of a call that is about it."""
    return shortened(next(iter(job.command.strip().splitlines()), ""), 60)


async def until_settled(job: Job, wait_s: float) -> bool:
    """Wait until the job ended or waits for input, at most `wait_s`; whether it waits for input."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_s
    while job.running:
        if await asyncio.to_thread(job.waiting):
            return True
        left = deadline - loop.time()
        if left <= 0:
            break
        await asyncio.wait((job.ended,), timeout=min(left, _ROUND_S))
    return False


async def until_answered(job: Job, look_s: float) -> bool:
    """Wait until the job ended, or printed something and paused or waits again; at most a few `look_s`.
    Whether it waits for input."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + 4 * look_s
    printed, since = job.output.bytes, loop.time()
    while job.running and loop.time() < deadline:
        await asyncio.wait((job.ended,), timeout=_ROUND_S)
        if job.output.bytes != printed:
            printed, since = job.output.bytes, loop.time()
        elif loop.time() - since >= look_s or (
            loop.time() - since >= 2 * _ROUND_S and await asyncio.to_thread(job.waiting)
        ):
            break
    return job.running and await asyncio.to_thread(job.waiting)


async def view(job: Job, workspace: Workspace, waiting: bool) -> ToolResult:
    """What the job printed since the last view, and how it is."""
    await job.settle()
    text, clipped = unread(job, workspace.output_limit)
    if job.running:
        state = "waits for input: answer with shell_send" if waiting else "runs"
    else:
        state = f"ended · exit {job.exit_code}" if job.exit_code is not None else "ended with its sandbox"
    seconds = job.duration_ms / 1000
    head = f"[job {job.id} {state} · {seconds:.1f} s · all its output: {job.where}]"
    body = text if text.endswith("\n") or not text else f"{text}\n"
    data = {
        "job": job.id,
        "running": job.running,
        "waiting": waiting,
        "exit_code": job.exit_code,
        "duration_ms": job.duration_ms,
        "tier": job.tier,
        "bytes": job.output.bytes,
        "truncated": clipped,
    }
    return ToolResult(text=(body or "(no new output)\n") + head, data=data)


def unread(job: Job, limit: int) -> tuple[str, bool]:
    """Clean text printed since the last call, both ends of it where it is longer than `limit` characters;
    and whether something was left out."""
    lost, data = job.output.spool.since(job.read_until)
    job.read_until = job.output.spool.total
    text = clean(data.decode("utf-8", "replace"))
    return excerpt(text, limit, lost)
