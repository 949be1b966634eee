"""A running sandbox: its shells' channels, its processes, and one-off programs of our own inside it."""

import asyncio
import itertools
import logging
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tools.errors import ToolTimeout
from tools.sandbox import cgroups, processes, remount, scripts, watchdog
from tools.sandbox.channel import OutputFifo, Status, StatusReader
from tools.sandbox.git_guard import GitGuard, Mount
from tools.sandbox.git_watch import GitWatch
from tools.sandbox.launch import START_S, Launched, explain, launch
from tools.sandbox.policy import SandboxDied, SandboxPolicy, SandboxUnavailable, Tier

if TYPE_CHECKING:
    from tools.sandbox.proxy import Proxy

log = logging.getLogger(__name__)

_ONE_OFF_BYTES: Final = 16 * 1024 * 1024
_ONE_OFFS: Final = 8
_LOOK_S: Final = 0.005


class Ran(NamedTuple):
    """What a one-off program gave. `stdout` is cut at the limit; the program then got SIGPIPE (141)."""

    exit_code: int
    stdout: bytes
    stderr: bytes


class Sandbox:
    """One long-lived sandbox of one workspace. Made by `tools.sandbox.start`.

    `dead` resolves when it ended, for whatever reason; nothing inside outlives it.
    """

    def __init__(self, launched: Launched, policy: SandboxPolicy, root: Path) -> None:
        self.root = root
        self.policy = policy
        self.tier: Tier = launched.tier
        self.confined = launched.tier != "none"
        self.run_folder = launched.run
        self.inside = launched.inside
        self.uid = launched.uid
        self.spawn_s = launched.spawn_s
        self.init = launched.init
        self.guard = launched.guard
        self.notices = [*launched.guard.notices, *launched.notices]
        self.proxy: Proxy | None = None
        # A fork is thrown away: nobody's git or editor comes to it.
        self._watches = _watches(launched.guard, root) if policy.view is None else []
        self._late: list[str] = []
        self._restoring = asyncio.Lock()
        self._watchdog: asyncio.Task[None] | None = None
        if launched.group is None or "memory" not in launched.group.kinds:
            self._watchdog = asyncio.ensure_future(
                watchdog.watch(self, policy.memory_mb << 20, self._late.append)
            )
        self._looking: asyncio.Task[list[str]] | None = None
        self.on_shell_exit: Callable[[int], None] = lambda code: None
        self._launched = launched
        self._loop = asyncio.get_running_loop()
        self.dead: asyncio.Future[None] = self._loop.create_future()
        self._closed = False
        self._numbers = itertools.count(1)
        self._one_offs = asyncio.Semaphore(_ONE_OFFS)
        self._supervisor: int | None = None
        self._runner: int | None = None
        self._pidfd = os.pidfd_open(launched.process.pid)
        self._loop.add_reader(self._pidfd, self._ended)
        for descriptor in (launched.control, launched.runner):
            os.set_blocking(descriptor, False)
        self.statuses = StatusReader(launched.status, lambda code: self.on_shell_exit(code))

    @classmethod
    async def open(cls, policy: SandboxPolicy, tier: Tier, root: Path) -> "Sandbox":
        """Start one and wait until commands can run in it.

        Raises:
            SandboxUnavailable: this tier does not work here for this workspace; why, and what to do.
        """
        launched = await launch(policy, tier, root)
        sandbox = cls(launched, policy, root)
        try:
            ready = await sandbox.status(sandbox.statuses.expect(b"ready"), START_S)
        except SandboxDied:
            why = explain(launched.process.poll(), launched.errors, root)
            await sandbox.close()
            raise SandboxUnavailable(why) from None
        except BaseException:
            await sandbox.close()
            raise
        if ready is None:
            await sandbox.close()
            raise SandboxUnavailable(f"The sandbox did not answer within {START_S:g} s.")
        sandbox._looking = asyncio.ensure_future(asyncio.to_thread(sandbox._begin))
        try:
            await sandbox._connect(policy)
        except BaseException:
            await sandbox.close()
            raise
        os.close(launched.errors)
        launched.errors = -1
        return sandbox

    async def _connect(self, policy: SandboxPolicy) -> None:
        """Open the way out where the network is a list of hosts."""
        if not policy.hosts:
            return
        if self.tier == "bubblewrap":
            from tools.sandbox.outlet import outlet  # with an HTTP library that few sandboxes need

            self.proxy = await outlet(self.init, policy.hosts)
        elif self.confined:
            self.notices.append("The hosts in sandbox.network cannot be reached in this tier: no network.")
        else:
            self.notices.append("The list in sandbox.network holds nothing back here: the network is open.")

    def _begin(self) -> list[str]:
        for watch in self._watches:
            watch.begin()
        return []

    def _look(self) -> list[str]:
        return [notice for watch in self._watches for notice in watch.look()]

    async def news(self) -> list[str]:
        """What to tell with the result of a command: connections that were refused, and what was planted in
        git repositories. A look at those that takes longer is told with the next result."""
        found = self._late.copy()
        self._late.clear()
        found += self.proxy.news() if self.proxy is not None else []
        if not self._watches:
            return self._told(found)
        if self._looking is None:
            self._looking = asyncio.ensure_future(asyncio.to_thread(self._look))
        await asyncio.wait((self._looking,), timeout=_LOOK_S)
        if self._looking.done():
            looked, self._looking = self._looking, None
            found += looked.result()
        return self._told(found)

    def _told(self, notices: list[str]) -> list[str]:
        for notice in notices:
            log.warning("%s: %s", self.root, notice.encode("utf-8", "backslashreplace").decode())
        return notices

    # -- life ------------------------------------------------------------------------------------------

    def _ended(self) -> None:
        self._loop.remove_reader(self._pidfd)
        self._launched.process.poll()
        if not self.dead.done():
            self.dead.set_result(None)

    @property
    def alive(self) -> bool:
        return not self.dead.done()

    def kill(self) -> None:
        """End everything inside at once; `dead` follows."""
        if self.alive:
            if self.tier == "bubblewrap":
                processes.send((self.init,), signal.SIGKILL)  # its parent reaps it and ends
            elif self.group is None or not self.group.kill():
                self._launched.process.terminate()

    async def close(self) -> None:
        """End it and give everything back. Closing twice does nothing more."""
        if self._closed:
            return
        self._closed = True
        self.kill()
        if self.alive:
            await asyncio.wait((self.dead,), timeout=5)
        if self.alive:
            self._launched.process.kill()
            await asyncio.wait((self.dead,), timeout=5)
        self.statuses.close()
        if self._watchdog is not None:
            self._watchdog.cancel()
            await asyncio.wait((self._watchdog,))
        self._loop.remove_reader(self._pidfd)
        launched = self._launched
        for descriptor in (launched.control, launched.runner, launched.errors, self._pidfd):
            if descriptor >= 0:
                os.close(descriptor)
        self.guard.release()
        for watch in self._watches:
            await asyncio.to_thread(watch.close)
        if self._looking is not None:
            await asyncio.wait((self._looking,))
        if self.proxy is not None:
            await self.proxy.close()
        await asyncio.to_thread(shutil.rmtree, self.run_folder, ignore_errors=True)
        if launched.group is not None:
            await asyncio.to_thread(cgroups.remove_soon, launched.group)

    @property
    def group(self) -> cgroups.ControlGroup | None:
        return self._launched.group

    # -- processes -------------------------------------------------------------------------------------

    def supervisor(self) -> int | None:
        """The host's pid of the first program inside."""
        if self._supervisor is None:
            found = processes.children(self.init)
            self._supervisor = found[0] if found else None
        return self._supervisor

    def runner(self) -> int | None:
        if self._runner is None and (supervisor := self.supervisor()) is not None:
            found = processes.children(supervisor)
            self._runner = found[0] if found else None
        return self._runner

    def shell(self) -> int | None:
        """The host's pid of the interactive shell now; None while the supervisor starts another."""
        supervisor = self.supervisor()
        if supervisor is None:
            return None
        found = [pid for pid in processes.children(supervisor) if pid != self.runner()]
        return found[-1] if found else None

    def own(self) -> set[int]:
        """Processes of ours, and with the runner everything below it."""
        return {pid for pid in (self.supervisor(), self.runner(), self.shell()) if pid is not None}

    async def restore_mounts(self) -> list[str]:
        """Make read-only again what a rename on the host (`git config`, an editor) unbound; returns what to
        tell about it. Call it before anything runs inside.

        Raises:
            SandboxDied: it could not be done; the sandbox was ended rather than left open.
        """
        if not self.guard.lost():
            return []
        async with self._restoring:
            return await self._restore(self.guard.lost())

    async def _restore(self, lost: list[Mount]) -> list[str]:
        if not lost:  # somebody else did it meanwhile
            return []
        if any(mount.writable or not mount.path.exists() for mount in lost):
            self.kill()
            raise SandboxDied("A git repository of the workspace was replaced outside the sandbox.")
        paths = [str(self.seen(mount.path)) for mount in lost]
        command = [sys.executable, "-I", "-S", remount.__file__, str(self.init), *paths]
        process = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd="/"
        )
        _, errors = await process.communicate()
        if process.returncode != 0:
            self.kill()
            words = errors.decode("utf-8", "replace").strip()
            raise SandboxDied(f"Git's files could not be made read-only again ({words}).")
        found = [self.guard.bound_again(mount) for mount in lost]
        return [notice for notice in found if notice is not None]

    def seen(self, path: Path) -> Path:
        """Where commands see a path of the workspace."""
        return self.policy.seen(path, self.root) if self.tier == "bubblewrap" else path

    # -- files and commands ----------------------------------------------------------------------------

    def number(self) -> int:
        return next(self._numbers)

    def put(self, name: str, content: bytes) -> None:
        """A file that commands can read, in the control folder."""
        path = self.run_folder / name
        path.write_bytes(content)
        path.chmod(0o644)

    def remove(self, *names: str) -> None:
        for name in names:
            (self.run_folder / name).unlink(missing_ok=True)

    def tell_shell(self, line: str) -> None:
        self._write(self._launched.control, line)

    def _write(self, descriptor: int, line: str) -> None:
        if not self.alive:
            raise SandboxDied("The sandbox has ended.")
        data = line.encode("utf-8", "surrogateescape")
        try:
            written = os.write(descriptor, data)
        except (BlockingIOError, BrokenPipeError):
            written = 0
        if written != len(data):
            self.kill()
            raise SandboxDied("The shell in the sandbox no longer reads; it was ended.")

    async def status(self, future: "asyncio.Future[Status]", timeout_s: float | None) -> Status | None:
        """The status, or None when time ran out first.

        Raises:
            SandboxDied: the sandbox ended first.
        """
        await asyncio.wait((future, self.dead), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if future.done() and not future.cancelled():
            return future.result()
        if self.dead.done():
            raise SandboxDied("The sandbox ended while the command ran; everything in it was killed.")
        return None

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        stdin: bytes | None = None,
        limit: int = _ONE_OFF_BYTES,
        timeout_s: float = 60.0,
    ) -> Ran:
        """Run one program of ours inside, beside whatever the shell does (a few milliseconds).

        Raises:
            ToolTimeout: it did not end in time; it and all it started were killed.
            SandboxDied: the sandbox ended meanwhile.
        """
        async with self._one_offs:
            self._late += await self.restore_mounts()
            return await self._run(argv, self.seen(cwd or self.root), stdin, limit, timeout_s)

    async def _run(
        self, argv: Sequence[str], cwd: Path, stdin: bytes | None, limit: int, timeout_s: float
    ) -> Ran:
        number, token = self.number(), secrets.token_hex(16)
        outputs: tuple[list[bytes], list[bytes]] = ([], [])
        streams = [
            self._collector(f"{kind}{number}", parts, limit)
            for kind, parts in zip(("o", "e"), outputs, strict=True)
        ]
        source = "/dev/null"
        if stdin is not None:
            self.put(f"i{number}", stdin)
            source = f"{self.inside}/i{number}"
        quoted = shlex.join(argv)
        text = scripts.one_off(self.inside, number, token, shlex.quote(str(cwd)), quoted, source)
        self.put(f"r{number}", text.encode("utf-8", "surrogateescape"))
        started = self.statuses.expect(f"{token}p".encode())
        ended = self.statuses.expect(token.encode())
        finished = False
        try:
            self._write(self._launched.runner, f"{self.inside}/r{number}\n")
            status = await self.status(ended, timeout_s)
            if status is None:
                name = Path(argv[0]).name
                raise ToolTimeout(f"{name} did not finish within {timeout_s:g} s and was killed.")
            for stream in streams:
                await stream.drain(0.1)
            finished = True
            return Ran(status.code, b"".join(outputs[0])[:limit], b"".join(outputs[1])[:limit])
        finally:
            if not finished and started.done() and not started.cancelled():
                self._kill_one_off(started.result().code)
            for future in (started, ended):
                future.cancel()
            for stream in streams:
                stream.close()
            self.remove(f"r{number}", f"i{number}")

    def _collector(self, name: str, parts: list[bytes], limit: int) -> OutputFifo:
        room = limit

        def sink(data: bytes) -> None:
            nonlocal room
            parts.append(data[:room] if room < len(data) else data)
            room -= len(data)
            if room <= 0:
                fifo.close()

        fifo = OutputFifo(self.run_folder / "io" / name, sink)
        return fifo

    def _kill_one_off(self, inner: int) -> None:
        runner = self.runner()
        if runner is None:
            return
        for pid in processes.children(runner):
            if processes.inner_pid(pid) == inner:
                processes.send((*processes.descendants(pid), pid), signal.SIGKILL)


def _watches(guard: GitGuard, root: Path) -> list[GitWatch]:
    """One over the workspace, and one over each git folder outside of it that commands may write."""
    guarded = [mount.path for mount in guard.mounts if not mount.writable]
    outside = [mount.path for mount in guard.mounts if mount.writable and root not in mount.path.parents]
    return [GitWatch(root, guarded), *(GitWatch(path, guarded, only=True) for path in outside)]
