"""A persistent shell in a long-lived sandbox: one command at a time, with state kept between them."""

import asyncio
import logging
import secrets
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tools.errors import EnvironmentFault, InvalidArguments
from tools.live_text import LiveText
from tools.output import Output
from tools.sandbox import Sandbox, SandboxDied, processes, scripts, start
from tools.sandbox.channel import OutputFifo, Status
from tools.sandbox.survivors import Survivors
from tools.sandbox.terminal import Terminal
from tools.shell_command import Command, Outcome
from tools.shell_job import Job

if TYPE_CHECKING:
    from tools.workspace import Workspace

log = logging.getLogger(__name__)

_GRACE_S: Final = 0.1
_SHELL_S: Final = 5.0
_KILL_S: Final = 0.5
_KEPT_OUTPUTS: Final = 8
_LEFT_STREAMS: Final = 32
_JOBS: Final = 16
_ENDED_JOBS: Final = 32
"""Jobs that have ended and can still be read."""


class ShellSession:
    """The shell of one workspace. The sandbox is started by the first command, and again after it died."""

    def __init__(self, workspace: "Workspace", limit: int = 30_000) -> None:
        self.limit = limit
        self._workspace = workspace
        self.jobs: dict[str, Job] = {}
        self._root = workspace.root
        self._policy = workspace.policy
        self._sandbox: Sandbox | None = None
        self._survivors: Survivors | None = None
        self._starting = asyncio.Lock()
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[Outcome]] = set()
        self._cwd = str(workspace.root)
        self._shell_exit: asyncio.Future[int] | None = None
        self._shell: processes.Process | None = None
        self._kept: list[Output] = []
        self._left: list[OutputFifo | Terminal] = []
        self._notices: list[str] = []
        self._job_count = 0
        self._closed = False

    @classmethod
    def of(cls, workspace: "Workspace") -> "ShellSession":
        """The workspace's shell, made on first use."""
        if workspace.shell is None:
            workspace.shell = cls(workspace)
        return workspace.shell

    @classmethod
    async def start(cls, workspace: "Workspace") -> "ShellSession":
        """The workspace's shell with its sandbox running.

        Raises:
            SandboxUnavailable: the demanded confinement does not work here.
        """
        session = cls.of(workspace)
        await session.sandbox()
        return session

    @property
    def cwd(self) -> str:
        """The folder in which the next command runs, absolute."""
        return self._cwd

    async def sandbox(self) -> Sandbox:
        """The running sandbox, started if there is none (any more)."""
        async with self._starting:
            if self._closed:
                raise EnvironmentFault("The workspace is closed; no command can run in it any more.")
            if self._sandbox is not None and self._sandbox.alive:
                return self._sandbox
            if self._sandbox is not None:
                self._notices.append(
                    "The sandbox had ended and was started again: variables, functions, background jobs and "
                    "files in /tmp and the home are gone; the workspace is as it was."
                )
                await self._drop()
            sandbox = await start(self._policy, self._root)
            sandbox.on_shell_exit = self._on_shell_exit
            self._notices += sandbox.notices
            self._survivors = Survivors(sandbox)
            self._sandbox = sandbox
            self._cwd, self._shell = str(sandbox.seen(self._root)), None
            return sandbox

    async def _drop(self) -> None:
        for stream in self._left:
            stream.close()
        self._left.clear()
        for job in self.jobs.values():
            job.close()
        self.jobs.clear()
        for output in self._kept:
            output.spool.close()
        self._kept.clear()
        if self._sandbox is not None:
            sandbox, self._sandbox = self._sandbox, None
            await sandbox.close()

    async def close(self) -> None:
        """End everything inside and give everything back."""
        self._closed = True
        if self._sandbox is not None:
            self._sandbox.kill()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=10)
        async with self._starting:
            await self._drop()

    # -- one command -----------------------------------------------------------------------------------

    async def run(
        self,
        command: str,
        *,
        timeout_s: float = 120.0,
        cwd: Path | None = None,
        tty: bool = False,
        progress: Callable[[str], None] = lambda text: None,
    ) -> Outcome:
        """Run a command in the shell and wait for its end; commands of one session queue.

        Cancelling kills the command and keeps the shell. The deadline counts from when the shell is free.

        Raises:
            InvalidArguments: the command holds a NUL.
            EnvironmentFault: the sandbox could not be started.
        """
        if "\0" in command:
            raise InvalidArguments("The command contains a NUL character, which no shell can run.")
        loop = asyncio.get_running_loop()
        running = Command(command, timeout_s, cwd, tty, progress, loop.create_future(), loop.create_future())
        task = asyncio.ensure_future(self._in_turn(running))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if running.started is None:
                task.cancel()
            elif not running.stop.done():
                running.stop.set_result(None)
            await asyncio.wait({task}, timeout=2)
            raise

    async def _in_turn(self, running: Command) -> Outcome:
        async with self._turn:
            for attempt in range(2):
                sandbox = await self.sandbox()
                try:
                    self._notices += await sandbox.restore_mounts()
                    return await self._execute(running, sandbox)
                except SandboxDied:  # between two commands: nothing of this one ran yet
                    if attempt:
                        raise
                    await asyncio.wait((sandbox.dead,), timeout=5)
            raise AssertionError("the loop returns or raises")

    async def _execute(self, running: Command, sandbox: Sandbox) -> Outcome:
        self._shell = self._shell or await self._identified(sandbox)
        number, token = sandbox.number(), secrets.token_hex(16)
        output = self._output(sandbox, number)
        live = LiveText(output, running.progress)
        stream = self._hand_over(sandbox, number, running.text, running.tty, live.feed)
        status = sandbox.statuses.expect(token.encode())
        self._shell_exit = running.shell_exit
        oom_before = sandbox.group.out_of_memory() if sandbox.group else 0
        running.started = time.monotonic()
        survivors = self._survivors
        assert survivors is not None
        survivors.begin()
        state_lost, found = False, None
        try:
            folder = _quoted(sandbox, running.cwd)
            line = scripts.command_line(sandbox.inside, number, token, folder, _standard(stream))
            sandbox.tell_shell(line)
            found = await running.finish(sandbox, survivors, status, self._memory_to_watch(sandbox))
            await stream.drain(_GRACE_S if found is not None else 0)
            state_lost = running.shell_exit.done()
        finally:
            duration = round((time.monotonic() - running.started) * 1000)
            status.cancel()
            self._shell_exit = None
            sandbox.remove(f"c{number}")
            live.close()
            left = self._settle(sandbox, stream)
        if sandbox.group and sandbox.group.out_of_memory() > oom_before:
            self._notices.append(
                f"A process was killed: the commands together used more than {self._policy.memory_mb} MB."
            )
        self._notices += await sandbox.news()
        old, self._cwd = self._cwd, self._folder(sandbox, found, state_lost)
        notices, self._notices = self._notices, []
        text, clipped = output.text()
        full = await self._keep(output) if clipped else self._forget(output)
        return Outcome(
            exit_code=found.code if found is not None else None,
            ended=running.ended,
            tier=sandbox.tier,
            cwd=self._cwd,
            cwd_changed=self._cwd != old,
            duration_ms=duration,
            text=text,
            clipped=clipped,
            size=output.bytes,
            full=full,
            state_lost=state_lost or found is None,
            survivors=await survivors.describe(left) if left else [],
            notices=notices,
        )

    def _memory_to_watch(self, sandbox: Sandbox) -> int | None:
        held = sandbox.group is not None and "memory" in sandbox.group.kinds
        return None if held else self._policy.memory_mb * 1024 * 1024

    def _folder(self, sandbox: Sandbox, status: Status | None, state_lost: bool) -> str:
        if status is None or state_lost:
            return str(sandbox.seen(self._root))
        return status.text.decode("utf-8", "surrogateescape") or self._cwd

    def _output(self, sandbox: Sandbox, number: int, at_once: bool = False) -> Output:
        name = f"out/{number}"
        limit = min(self.limit, self._workspace.output_limit)
        return Output(sandbox.run_folder / name, limit, f"{sandbox.inside}/{name}", at_once)

    def _hand_over(
        self, sandbox: Sandbox, number: int, command: str, tty: bool, sink: Callable[[bytes], object]
    ) -> OutputFifo | Terminal:
        """Put a command where the shell finds it; returns the stream of what it will print.

        Raises:
            EnvironmentFault: there is no room for it, or no terminal.
        """
        try:
            sandbox.put(f"c{number}", _source(command))
            return self._stream(sandbox, number, tty, sink)
        except OSError as error:
            raise EnvironmentFault(
                f"The command could not be handed to the shell ({error.strerror or error}); it did not run. "
                "Free space where temporary files lie, then call it again."
            ) from error

    def _stream(
        self, sandbox: Sandbox, number: int, tty: bool, sink: Callable[[bytes], object]
    ) -> OutputFifo | Terminal:
        if tty and sandbox.tier == "landlock":
            raise EnvironmentFault(
                "Commands have no terminals in this sandbox (landlock); call it without tty."
            )
        if tty:
            return Terminal(
                sandbox.init if sandbox.confined else None, sandbox.uid, lambda data: _do(sink, data)
            )
        return OutputFifo(sandbox.run_folder / "io" / f"o{number}", lambda data: _do(sink, data))

    def _settle(self, sandbox: Sandbox, stream: OutputFifo | Terminal) -> list[processes.Process]:
        """What the command left running is noted; it may go on writing, to nobody."""
        left: list[processes.Process] = []
        if sandbox.alive and self._survivors is not None:
            left = self._survivors.settle()
            shell = sandbox.shell()
            self._shell = processes.identify(shell) if shell is not None else None
        if stream.ended.done() or isinstance(stream, Terminal):
            stream.close()
            return left
        stream.sink = lambda data: None
        stream.throttle()
        self._left = [other for other in self._left if not other.ended.done()]
        self._left.append(stream)
        if len(self._left) > _LEFT_STREAMS:
            self._left.pop(0).close()
        return left

    async def _identified(self, sandbox: Sandbox) -> processes.Process | None:
        """The shell, once the supervisor has started it: before a command can say that it ended."""
        deadline = time.monotonic() + _SHELL_S
        while sandbox.alive and time.monotonic() < deadline:
            shell = sandbox.shell()
            found = processes.identify(shell) if shell is not None else None
            if found is not None:
                return found
            await asyncio.sleep(0.002)
        return None

    def _on_shell_exit(self, code: int) -> None:
        """The supervisor says the shell ended. Anyone inside could say so: believe it if it is gone."""
        gone = self._shell is None or not processes.alive(self._shell)
        if gone and self._shell_exit is not None and not self._shell_exit.done():
            self._shell_exit.set_result(code)

    async def _keep(self, output: Output) -> bytes:
        """The whole output; its file stays for commands to look at until newer ones push it out."""
        await asyncio.to_thread(output.spool.finish)
        full = await asyncio.to_thread(output.spool.content)
        output.spool.close(keep_file=True)
        self._kept.append(output)
        if len(self._kept) > _KEPT_OUTPUTS:
            self._kept.pop(0).spool.close()
        return full

    def _forget(self, output: Output) -> None:
        output.spool.close()

    # -- background jobs -------------------------------------------------------------------------------

    async def background(self, command: str, *, cwd: Path | None = None, tty: bool = False) -> Job:
        """Start a command that runs on beside later ones, with a copy of the shell's state.

        Raises:
            InvalidArguments: a NUL in the command, or too many jobs.
            EnvironmentFault: the shell did not start it.
        """
        if "\0" in command:
            raise InvalidArguments("The command contains a NUL character, which no shell can run.")
        if sum(job.running for job in self.jobs.values()) >= _JOBS:
            raise InvalidArguments(f"{_JOBS} background jobs run already; end one first.")
        async with self._turn:
            sandbox = await self.sandbox()
            number, started, token = sandbox.number(), secrets.token_hex(16), secrets.token_hex(16)
            output = self._output(sandbox, number, at_once=True)
            try:
                stream = self._hand_over(sandbox, number, command, tty, output.feed)
            except EnvironmentFault:
                output.spool.close()
                raise
            self._job_count += 1
            job = Job(str(self._job_count), command, sandbox, output, stream)
            job.marker = f"ETUDE_JOB={started}".encode()
            begun = sandbox.statuses.expect(started.encode())
            ended = sandbox.statuses.expect(token.encode())
            ended.add_done_callback(job.on_status)
            folder = _quoted(sandbox, cwd)
            line = scripts.background_line(sandbox.inside, number, started, token, folder, _standard(stream))
            try:
                sandbox.tell_shell(line)
                answer = await sandbox.status(begun, 10)
                if answer is None:
                    raise EnvironmentFault("The shell did not start the job within 10 s.")
            except BaseException:  # nobody will ever ask for this job: it gets no reader
                begun.cancel()
                ended.cancel()
                job.close()
                raise
            self._find(job, sandbox, answer.code)
            self._forget_oldest()
            self.jobs[job.id] = job
            return job

    def _forget_oldest(self) -> None:
        """Each job that can be read holds an open file and its output on disk."""
        ended = [job for job in self.jobs.values() if not job.running]
        for job in ended[: max(len(ended) - _ENDED_JOBS, 0)]:
            del self.jobs[job.id]
            job.close()

    async def end(self, job: Job) -> bool:
        """Kill a job and all it started; whether nothing was left.

        What it detached with an emptied environment can be told from other jobs' only when it is the last.
        """
        clean = await job.kill()
        if any(other.running for other in self.jobs.values()):
            return clean
        idle = not self._turn.locked() and self._sandbox is not None and self._sandbox.alive
        if idle and self._survivors is not None:
            clean = await self._survivors.end_strays(_KILL_S) and clean
        return clean

    def _find(self, job: Job, sandbox: Sandbox, inner: int) -> None:
        shell = sandbox.shell()
        for pid in processes.children(shell) if shell is not None else []:
            if processes.inner_pid(pid) == inner:
                job.pid = pid
                assert self._survivors is not None
                self._survivors.spare(pid)


def _do(sink: Callable[[bytes], object], data: bytes) -> None:
    sink(data)


def _quoted(sandbox: Sandbox, folder: Path | None) -> str | None:
    """A folder of the workspace as commands see it, for the shell."""
    return shlex.quote(str(sandbox.seen(folder))) if folder is not None else None


def _source(command: str) -> bytes:
    return command.encode("utf-8", "surrogateescape") + b"\n"


def _standard(stream: OutputFifo | Terminal) -> str:
    return f"<{stream.name} >{stream.name} 2>&1" if isinstance(stream, Terminal) else ""
