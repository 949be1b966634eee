"""Starts one sandbox: gathers what the tier needs, spawns it, waits until it is there."""

import asyncio
import functools
import json
import logging
import marshal
import os
import platform
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools.errors import EnvironmentFault
from tools.sandbox import (
    bubblewrap,
    cgroups,
    enter,
    landlock,
    landlocked,
    leftovers,
    mapped,
    runtime,
    scripts,
    trusted,
    unconfined,
)
from tools.sandbox.git_guard import GitGuard, guard
from tools.sandbox.policy import SandboxPolicy, SandboxUnavailable, Tier, View
from tools.sandbox.seccomp import UnknownMachine, program, shared_program
from tools.sandbox.toolchains import Toolchains, discover

log = logging.getLogger(__name__)

START_S: Final = 20.0
_FIRST_SPARE_UID: Final = 60600
BARE: Final = ("-I", "-S", "-E", "-X", "utf8")
"""Python without anything to look for: these programs import only what the interpreter has built in, since
their start is most of a sandbox's."""
_STAGE: Final = Path("/tmp")


@dataclass(slots=True)
class Launched:
    """A running sandbox before anyone talks to it. `init` is the host's pid of the process that everything
    inside descends from."""

    tier: Tier
    process: "subprocess.Popen[bytes]"
    init: int
    run: Path
    inside: str
    control: int
    runner: int
    status: int
    errors: int
    """What bubblewrap complains about until the supervisor runs."""
    guard: GitGuard
    group: cgroups.ControlGroup | None
    uid: int
    """The kernel uid of commands."""
    spawn_s: float
    """From starting the processes until their confinement stood."""
    notices: list[str]


@dataclass(slots=True)
class _Descriptors:
    """Everything opened for a start, so that a failed one leaves nothing open."""

    ours: list[int] = field(default_factory=list)
    theirs: list[int] = field(default_factory=list)

    def pipe(self, we_write: bool) -> tuple[int, int]:
        """(our end, their end)."""
        read, write = os.pipe2(os.O_CLOEXEC)
        ours, theirs = (write, read) if we_write else (read, write)
        self.ours.append(ours)
        self.theirs.append(theirs)
        return ours, theirs

    def memory(self, content: bytes, name: str = "etude") -> int:
        descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
        self.theirs.append(descriptor)
        os.write(descriptor, content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor

    def close_theirs(self) -> None:
        for descriptor in self.theirs:
            os.close(descriptor)
        self.theirs.clear()

    def close(self) -> None:
        self.close_theirs()
        for descriptor in self.ours:
            os.close(descriptor)
        self.ours.clear()


def check_root(root: Path, toolchains: Toolchains) -> None:
    """Refuse workspaces that would put the whole home or system inside.

    Raises:
        SandboxUnavailable
    """
    for home in (*toolchains.homes, Path("/usr")):
        if home == root or root in home.parents:
            raise SandboxUnavailable(
                f"{root} contains {home}, so confining commands to it would protect nothing. Open a folder "
                "below it, or set sandbox.tier to none."
            )


def spare_uid() -> int:
    """A uid that no account has."""
    for uid in range(_FIRST_SPARE_UID, _FIRST_SPARE_UID + 500):
        try:
            pwd.getpwuid(uid)
        except KeyError:
            return uid
    raise SandboxUnavailable("Every uid from 60600 to 61099 belongs to an account; none is left to use.")


async def launch(policy: SandboxPolicy, tier: Tier, root: Path) -> Launched:
    """Start the tier's processes around the supervisor. Call from the thread of the event loop, which must
    live as long as the sandbox (its death is the sandbox's).

    Raises:
        SandboxUnavailable: this tier does not work here for this workspace; why, and what to do.
        EnvironmentFault: the machine refused something (no space, no processes left).
    """
    toolchains = await asyncio.to_thread(discover, root, policy.read)
    if tier != "none":
        check_root(root, toolchains)
    user = landlock.user_of(root) if tier == "landlock" else None
    run = await asyncio.to_thread(runtime.create, user[1] if user else None)
    descriptors = _Descriptors()
    held = GitGuard()
    group = cgroups.create(policy.memory_mb, policy.pids)
    try:
        if tier == "bubblewrap":
            # What lies around a fork is somebody else's repository: the base's copy knows nothing of it.
            homes = toolchains.homes if policy.view is None else None
            held = await asyncio.to_thread(guard, root, homes)
        seen, etc = bubblewrap.INSIDE if tier == "bubblewrap" else str(run), bubblewrap.SHOWN_OF_ETC
        known = await asyncio.to_thread(trusted.bring, tier, run, seen, root, toolchains, etc)
        launched = await _spawn(policy, tier, root, toolchains, known, run, held, group, descriptors)
    except BaseException as error:
        descriptors.close()
        held.release()
        await asyncio.to_thread(shutil.rmtree, run, ignore_errors=True)
        if group is not None:
            await asyncio.to_thread(cgroups.remove_soon, group)
        if isinstance(error, OSError):
            raise EnvironmentFault(f"The sandbox could not be prepared: {error}.") from error
        raise
    return launched


async def _spawn(
    policy: SandboxPolicy,
    tier: Tier,
    root: Path,
    toolchains: Toolchains,
    known: trusted.Trusted,
    run: Path,
    held: GitGuard,
    group: cgroups.ControlGroup | None,
    descriptors: _Descriptors,
) -> Launched:
    control, control_theirs = descriptors.pipe(we_write=True)
    runner, runner_theirs = descriptors.pipe(we_write=True)
    status, status_theirs = descriptors.pipe(we_write=False)
    errors, errors_theirs = descriptors.pipe(we_write=False)
    info, info_theirs = descriptors.pipe(we_write=False)
    inside = bubblewrap.INSIDE if tier == "bubblewrap" else str(run)
    pids = policy.pids if tier == "bubblewrap" else None
    if tier == "landlock" and (group is None or "pids" not in group.kinds):
        owner = landlock.user_of(root)
        pids = policy.pids + landlock.tasks_of(owner[0] if owner else os.getuid())
    safe = scripts.trusted(toolchains.path, (root, policy.seen(root, root)))
    _write_scripts(run, inside, (control_theirs, status_theirs, runner_theirs), pids, safe)
    script = f"{inside}/supervisor.sh"
    # The name is what `leftovers` knows it by. In the other tiers a process of ours ends everything by
    # itself, and must not be ended before it has.
    named = [run.name] if tier == "bubblewrap" else []
    supervisor = [*_bash(), "--noprofile", "--norc", script, *named]
    uid = os.getuid()
    block: int | None = None
    environment: dict[str, str] = {"PATH": "/usr/bin:/bin"}
    if tier == "bubblewrap":
        if group is not None:
            block, block_theirs = descriptors.pipe(we_write=True)
        else:
            block_theirs = None
        identity = _identity(toolchains)
        mapping = _Mapping(root, toolchains, run, policy.view, held.outside) if uid == 0 else None
        options = bubblewrap.arguments(
            root=root,
            run=run,
            policy=policy,
            toolchains=toolchains,
            guard=held,
            identity=identity,
            trusted=known,
            source=mapping.source if mapping else lambda path: _held(path, policy.view),
            data=lambda text: descriptors.memory(text.encode()),
            seccomp=_filter(descriptors, program),
            info=info_theirs,
            block=block_theirs,
        )
        packed = descriptors.memory("\0".join(options).encode() + b"\0")
        if mapping is not None:
            uid = spare_uid()
            order = mapping.order(uid, ["--args", str(packed), "--", *supervisor])
            # mapped.py closes the descriptor it reads its order from; the rest passes through to bwrap.
            command = [sys.executable, *BARE, mapped.__file__, str(descriptors.memory(order))]
        else:
            command = [str(bubblewrap.find().path), "--args", str(packed), "--", *supervisor]
            if policy.view is not None and policy.view.holder is not None:
                holder = str(policy.view.holder)
                command = [sys.executable, *BARE, enter.__file__, holder, *command]
    elif tier == "landlock":
        block, block_theirs = descriptors.pipe(we_write=True)
        speaks = landlock.version()
        code = _filter(descriptors, lambda: shared_program(policy.whole_network, truncate=speaks >= 3))
        user = landlock.user_of(root)
        plan = landlock.plan(root, run, policy, toolchains, _identity(toolchains), known, user, speaks)
        uid, environment = user[0] if user else uid, plan.environment
        order = plan.order(os.getpid(), code, block_theirs, supervisor)
        command = [sys.executable, *BARE, landlocked.__file__, str(descriptors.memory(order))]
    else:
        identity = bubblewrap.Identity(uid, os.getgid(), _account_name(uid), _home(toolchains))
        environment = bubblewrap.environment(policy, toolchains, identity, known, private_tmp=False)
        environment["PATH"] = os.environ.get("PATH", environment["PATH"])
        command = [sys.executable, *BARE, unconfined.__file__, str(os.getpid()), *supervisor]
    _watch()
    began = time.perf_counter()
    try:
        # Not asyncio's: its watcher would own the child, and the fork must happen on this very thread.
        process = subprocess.Popen(  # noqa: ASYNC220
            command,
            env=environment,
            cwd="/" if tier == "bubblewrap" else root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors_theirs,
            pass_fds=[fd for fd in descriptors.theirs if fd != errors_theirs],
            start_new_session=True,
        )
    except OSError as error:
        raise SandboxUnavailable(f"{command[0]} could not be started: {error.strerror}.") from error
    descriptors.close_theirs()
    try:
        init = process.pid
        if tier == "bubblewrap":
            init = await _child_pid(process, info, errors, root)
        if group is not None:
            group.add(process.pid)
            if init != process.pid:
                group.add(init)
        if block is not None:
            os.write(block, b"1")
        spawned = time.perf_counter()
    except BaseException:
        process.kill()
        await asyncio.to_thread(process.wait)
        await asyncio.to_thread(leftovers.sweep, run.name)
        raise
    for descriptor in (info, *([block] if block is not None else [])):
        os.close(descriptor)
    descriptors.ours = []
    return Launched(
        tier=tier, process=process, init=init, run=run, inside=inside, control=control, runner=runner,
        status=status, errors=errors, guard=held, group=group, uid=uid, spawn_s=spawned - began,
        notices=known.notices,
    )  # fmt: skip


@functools.cache
def _watch() -> None:
    """Once per process: what ends a half-started sandbox when this server is killed."""
    leftovers.watch()


def _bash() -> list[str]:
    """How the first program is started; by its path, since a workspace may lie in front of the PATH."""
    found = [path for path in ("/usr/bin/bash", "/bin/bash", "/usr/local/bin/bash") if os.path.exists(path)]
    return found[:1] or ["/usr/bin/env", "bash"]


def _write_scripts(run: Path, inside: str, theirs: tuple[int, int, int], pids: int | None, safe: str) -> None:
    control, status, runner = theirs
    texts = {
        "supervisor.sh": scripts.supervisor(inside, control, status, runner, pids, safe),
        "shell.rc": scripts.SHELL_RC,
        "runner.sh": scripts.runner(safe),
    }
    for name, text in texts.items():
        path = run / name
        path.write_text(text)
        path.chmod(0o644)


def _filter(descriptors: _Descriptors, make: Callable[[], bytes]) -> int:
    try:
        return descriptors.memory(make())
    except UnknownMachine as error:
        raise SandboxUnavailable(str(error)) from error


def _held(path: Path, view: View | None) -> str:
    return str(view.held(path) if view is not None else path)


def _account_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return "etude"


def _home(toolchains: Toolchains) -> Path:
    return toolchains.homes[0] if toolchains.homes else Path("/tmp")


def _identity(toolchains: Toolchains) -> bubblewrap.Identity:
    """Never root inside: programs that look (initdb, tar, npm) behave as they do for a developer."""
    home = _home(toolchains)
    if os.getuid() == 0:
        return bubblewrap.Identity(1000, 1000, "etude", home)
    return bubblewrap.Identity(os.getuid(), os.getgid(), _account_name(os.getuid()), home)


class _Mapping:
    """Where `mapped.py` gathers the host's folders for a root server, by index below the stage."""

    def __init__(
        self, root: Path, toolchains: Toolchains, run: Path, view: View | None, outside: Sequence[Path]
    ) -> None:
        self._program = bubblewrap.find()
        self._root = root
        self._view = view
        self._plain = (*self._program.needs, run)
        self._paths = list(dict.fromkeys((root, *outside, *toolchains.roots, *self._plain)))

    def source(self, path: Path) -> str:
        """The path under which bubblewrap finds a host path."""
        for index, root in enumerate(self._paths):
            if path == root:
                return str(_STAGE / str(index))
            if root in path.parents:
                return str(_STAGE / str(index) / path.relative_to(root))
        return str(path)

    def order(self, uid: int, arguments: Sequence[str]) -> bytes:
        paths = []
        for path in self._paths:
            status = path.stat()
            # An overlay cannot be mapped: a fork belongs to the spare user already.
            mapped_too = path not in self._plain and status.st_uid != uid
            place = _held(path, self._view) if path == self._root else str(path)
            paths.append([place, status.st_uid, status.st_gid, mapped_too])
        links = {path.name: str(self._paths.index(path)) for path in self._program.needs}
        program_path = self._program.path
        for path in self._program.needs[:1]:
            program_path = _STAGE / path.name / program_path.relative_to(path)
        order = {
            "paths": paths,
            "stage": str(_STAGE),
            "uid": uid,
            "links": links,
            "holder": self._view.holder if self._view is not None else None,
            "program": [str(program_path), *arguments],
        }
        return marshal.dumps(order)


async def _child_pid(process: "subprocess.Popen[bytes]", info: int, errors: int, root: Path) -> int:
    """What bubblewrap says about itself once its namespaces stand."""
    loop = asyncio.get_running_loop()
    said = bytearray()
    done: asyncio.Future[None] = loop.create_future()

    def read() -> None:
        data = os.read(info, 4096)
        said.extend(data)
        if (not data or b"}" in said) and not done.done():
            done.set_result(None)

    loop.add_reader(info, read)
    try:
        async with asyncio.timeout(START_S):
            await done
    except TimeoutError:
        raise SandboxUnavailable(f"bubblewrap did not start within {START_S:g} s.") from None
    finally:
        loop.remove_reader(info)
    try:
        return int(json.loads(said)["child-pid"])
    except (ValueError, KeyError):
        pass
    code = await asyncio.to_thread(process.wait)
    raise SandboxUnavailable(explain(code, errors, root))


def explain(code: int | None, errors: int, root: Path) -> str:
    """Why a sandbox did not come up, from its exit code and what it wrote to `errors`."""
    os.set_blocking(errors, False)
    try:
        words = os.read(errors, 4096).decode("utf-8", "replace").strip()
    except BlockingIOError:
        words = ""
    return _why(code, words, root)


def _why(code: int | None, words: str, root: Path) -> str:
    if code == mapped.CANNOT_MAP:
        kind = platform.release()
        return (
            f"The server runs as root, and the file system of {root} cannot map its owner to another uid "
            f"({words}; kernel {kind}). Commands are never run as root: start the server as the owner of "
            "the workspace, move the workspace to ext4, xfs or btrfs, or set sandbox.tier to none."
        )
    if "No permissions to create" in words or "setting up uid map" in words:
        return (
            f"This system refuses unprivileged user namespaces ({words}). Allow them (sysctl "
            "kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0, or "
            "--security-opt in a container), or set sandbox.tier to none."
        )
    if code == landlocked.CANNOT_CONFINE:
        return f"Landlock could not be entered: {words}."
    return f"bubblewrap could not start (exit {code}): {words or 'it said nothing'}."
