"""Copy-on-write forks of one workspace: many at once, each its own, the base as it was.

A `Base` is an immutable copy of a folder. A fork is an overlay over it where the kernel can (as root, or in
a user namespace), held by a process of ours: `root` leads into its mounts, so that the server's own tools
and commands in the sandbox see one and the same tree. Elsewhere a fork is a copy, which shares blocks where
the file system can. `Fork.kind` says which.
"""

import asyncio
import json
import logging
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

from tools.confinement import name_too
from tools.errors import EnvironmentFault
from tools.fork_changes import Change, against_layer, against_tree
from tools.sandbox import overlay
from tools.sandbox.launch import spare_uid
from tools.sandbox.policy import SandboxPolicy, View
from tools.sandbox.processes import identify
from tools.workspace import Workspace

__all__ = ["Base", "Change", "Fork", "sweep"]

log = logging.getLogger(__name__)

Kind = Literal["overlay", "reflink", "copy"]

SEEN_AT: Final = Path("/workspace")
_START_S: Final = 20.0
_DELETIONS: Final = 2
_LINE: Final = 64 * 1024


class Fork:
    """One fork. `root` is its folder for tools of the server: absolute, and not to be resolved, since it may
    lead into the mounts of another process."""

    def __init__(self, base: "Base", name: str, kind: Kind, root: Path, upper: Path | None) -> None:
        self.base = base
        self.name = name
        self.kind: Kind = kind
        self.root = root
        self._upper = upper
        self._workspaces: list[Workspace] = []
        self._closed = False

    def workspace(self, policy: SandboxPolicy | None = None, seen_at: Path = SEEN_AT) -> Workspace:
        """A workspace whose commands see the fork at `seen_at`; ends with the fork."""
        view = View(seen_at, self.base.holder if self.kind == "overlay" else None)
        name_too(self.root, seen_at)
        made = Workspace(self.root, replace(policy or SandboxPolicy(), view=view))
        self._workspaces.append(made)
        return made

    async def changes(self) -> list[Change]:
        """What differs from the base, by path. Reads only what was touched where the fork is an overlay."""
        if self._upper is not None:
            return await asyncio.to_thread(against_layer, self.base.lower, self._upper)
        return await asyncio.to_thread(against_tree, self.base.lower, self.root)

    async def close(self) -> None:
        """End what runs in it and let go; its files are deleted later. Closing twice does nothing more."""
        if self._closed:
            return
        self._closed = True
        workspaces, self._workspaces = self._workspaces, []
        for workspace in workspaces:
            await workspace.close()
        name_too(self.root, None)
        await self.base.let_go(self)


class Base:
    """An immutable folder and the forks made of it. Close it when the last fork is done."""

    def __init__(self, home: Path, owner: tuple[int, int] | None) -> None:
        self.lower = home / "lower"
        self.kind: Kind = "copy"
        self.why = ""
        """Why forks are no overlays, where they are not."""
        self._home = home
        self._owner = owner
        self._process: asyncio.subprocess.Process | None = None
        self._asking = asyncio.Lock()
        self._forks: dict[str, Fork] = {}
        self._count = 0
        self._deletions: set[asyncio.Task[None]] = set()
        self._deleting = asyncio.Semaphore(_DELETIONS)

    @classmethod
    async def copy(cls, source: Path, where: Path, overlay: bool = True) -> "Base":
        """A base with the content of `source` as it is now, kept below the folder `where`. Call it on the
        thread of the event loop, which must live as long as the base. Without `overlay` forks are copies
        even where they need not be.

        What earlier servers left in `where` is deleted on the way. Sockets and devices are not copied,
        set-user-id bits are dropped; as root everything belongs to the uid that sandboxes run as.

        Raises:
            EnvironmentFault: something could not be read, or there is no room; nothing is left behind.
        """
        spare = spare_uid() if os.geteuid() == 0 else None
        owner = (spare, spare) if spare is not None else None
        home = await asyncio.to_thread(_make_home, where)
        base = cls(home, owner)
        try:
            await asyncio.to_thread((home / "view").mkdir)
            await base._start()
            base._delete_later(*await asyncio.to_thread(_left_behind, where))
            copied = await base._ask({"copy": str(source), "to": str(base.lower), "owner": owner})
            if not overlay:
                base.kind, base.why = "copy", "Copies were asked for."
            await base._choose_kind(copied["shared"] and copied["files"] > 0)
        except BaseException:
            await base.close()
            raise
        return base

    @property
    def holder(self) -> int:
        """The process whose mounts hold the forks."""
        assert self._process is not None
        return self._process.pid

    async def fork(self, memory_mb: int | None = None) -> Fork:
        """A new fork. With `memory_mb` an overlay keeps what is written in memory, and no more than that:
        then "no space left" is what a command or an edit meets.

        Raises:
            EnvironmentFault: there is no room, or the process that holds the forks is gone.
        """
        self._count += 1
        name = str(self._count)
        layers = self._home / "forks" / name
        if self.kind == "overlay":
            status = os.stat(self.lower)
            size = memory_mb * 1024 * 1024 if memory_mb is not None else None
            if size is None:
                layers.mkdir(mode=0o700, parents=True)
            await self._ask(
                {
                    "mount": name,
                    "lower": str(self.lower),
                    "layers": str(layers) if size is None else None,
                    "size": size,
                    "owner": [status.st_uid, status.st_gid],
                    "mode": stat.S_IMODE(status.st_mode),
                }
            )
            view = Path(f"/proc/{self.holder}/root{self._home}/view")
            root = view / name
            upper = (layers if size is None else view / f"{name}.layers") / "upper"
            made = Fork(self, name, "overlay", root, upper)
        else:
            layers.mkdir(mode=0o700, parents=True)
            owner = list(self._owner) if self._owner else None
            await self._ask({"copy": str(self.lower), "to": str(layers / "tree"), "owner": owner})
            made = Fork(self, name, self.kind, layers / "tree", None)
        self._forks[name] = made
        return made

    async def let_go(self, fork: Fork) -> None:
        """Unmount a fork and delete its files in the background."""
        self._forks.pop(fork.name, None)
        if fork.kind == "overlay" and self._process is not None and self._process.returncode is None:
            await self._ask({"unmount": fork.name})
        self._delete_later(self._home / "forks" / fork.name)

    async def close(self) -> None:
        """Close the forks, end the process that holds them, delete everything."""
        for fork in list(self._forks.values()):
            await fork.close()
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
        self._delete_later(self._home)
        while self._deletions:
            await asyncio.wait(self._deletions)

    # -- the process -----------------------------------------------------------------------------------

    async def _start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", overlay.__file__, str(os.getpid()), str(self._home / "view")),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            limit=_LINE,
        )
        said = await self._answer(_START_S)
        self.kind, self.why = ("overlay" if said["overlay"] else "copy"), said["why"]

    async def _choose_kind(self, shared: bool) -> None:
        """Try an overlay once, since a file system may refuse to be a layer of one."""
        if self.kind == "overlay":
            try:
                await (await self.fork()).close()
            except EnvironmentFault as error:
                self.kind, self.why = "copy", error.message
        if self.kind != "overlay":
            self.kind = "reflink" if shared else "copy"

    async def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        async with self._asking:
            process = self._process
            if process is None or process.stdin is None or process.returncode is not None:
                raise EnvironmentFault("The process that holds forked workspaces has ended; make a new base.")
            try:
                process.stdin.write(json.dumps(request).encode() + b"\n")
                await process.stdin.drain()
                answered = asyncio.ensure_future(self._answer(None))
                try:
                    answer = await asyncio.shield(answered)
                except asyncio.CancelledError:
                    await answered  # the next request must not get this one's answer
                    raise
            except (BrokenPipeError, ConnectionResetError) as error:
                raise EnvironmentFault("The process that holds forked workspaces has ended.") from error
        if "error" in answer:
            raise EnvironmentFault(
                f"The workspace could not be forked: {answer['why']}. Free space where forks are kept, or "
                "fork a folder that can be read.",
                errno=answer["error"],
            )
        return answer

    async def _answer(self, timeout_s: float | None) -> dict[str, Any]:
        assert self._process is not None and self._process.stdout is not None
        try:
            async with asyncio.timeout(timeout_s):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise EnvironmentFault("The process that holds forked workspaces did not start.") from None
        if not line:
            raise EnvironmentFault("The process that holds forked workspaces has ended.")
        return json.loads(line)

    # -- deletion --------------------------------------------------------------------------------------

    def _delete_later(self, *paths: Path) -> None:
        async def delete(path: Path) -> None:
            async with self._deleting:
                await asyncio.to_thread(_delete, path)

        for path in paths:
            task = asyncio.ensure_future(delete(path))
            self._deletions.add(task)
            task.add_done_callback(self._deletions.discard)


def sweep(where: Path) -> int:
    """Delete what servers that were killed left in `where`; returns how many bases. Blocks."""
    found = _left_behind(where)
    for path in found:
        _delete(path)
    return len(found)


def _make_home(where: Path) -> Path:
    process = identify(os.getpid())
    where.mkdir(parents=True, exist_ok=True)
    name = f"{os.getpid()}-{process.started if process else 0}-{os.urandom(4).hex()}"
    home = Path(os.path.realpath(where)) / name
    home.mkdir(mode=0o700)
    return home


def _left_behind(where: Path) -> list[Path]:
    """Bases of processes that are gone."""
    found: list[Path] = []
    for path in where.iterdir() if where.is_dir() else ():
        pid, _, rest = path.name.partition("-")
        started = rest.partition("-")[0]
        if not (pid.isdigit() and started.isdigit() and "-" in rest):
            continue
        process = identify(int(pid))
        if process is None or process.started != int(started):
            found.append(path)
    return found


def _delete(path: Path) -> None:
    """Delete a tree whatever the modes of its folders say; what cannot be deleted is logged."""

    def make_writable(_: object, name: str, problem: tuple[type, BaseException, object]) -> None:
        error = problem[1]
        if isinstance(error, FileNotFoundError):
            return
        if isinstance(error, PermissionError) and name not in tried:
            tried.add(name)
            for folder in (os.path.dirname(name), name):
                if os.path.isdir(folder) and not os.path.islink(folder):
                    os.chmod(folder, 0o700)
            if os.path.isdir(name) and not os.path.islink(name):
                shutil.rmtree(name, onerror=make_writable)
            else:
                os.unlink(name)
            return
        log.warning("%s could not be deleted: %s", name, error)

    tried: set[str] = set()
    try:
        shutil.rmtree(path, onerror=make_writable)
    except OSError as error:
        log.warning("%s could not be deleted: %s", path, error)
