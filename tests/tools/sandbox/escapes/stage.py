"""Builds the world around one attempt, and looks at it afterwards from outside."""

import asyncio
import ctypes
import os
import shutil
import socket
import subprocess
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.tools.sandbox.escapes.attempt import ESCAPED, PRELUDE, SECRET, Attempt, Stage
from tools.errors import ToolTimeout
from tools.sandbox import Ran, SandboxDied, SandboxPolicy, Tier, start

OTHER = 61001
KEPT = f"kept {SECRET}"
_SETTINGS = ("kernel/core_pattern", "kernel/hostname", "fs/file-max", "kernel/domainname")
_DEVICES = ("/dev/null", "/dev/full", "/dev/zero", "/dev/random")
_libc = ctypes.CDLL(None, use_errno=True)


def template(folder: Path) -> Path:
    """A repository to copy: with one commit and one tracked file."""
    root = folder / "template"
    git = ["git", "-C", root, "-c", "user.name=x", "-c", "user.email=x@x"]
    root.mkdir()
    (root / "tracked").write_text("x\n")
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *words], check=True)
    return root


async def attempted(attempt: Attempt, tier: Tier, folder: Path, repository: Path) -> list[str]:
    """Run one attempt in a sandbox of its own; how it got out, as far as can be seen from outside."""
    root, home, outside = folder / "home" / "project", folder / "home", folder / "outside"
    home.mkdir(parents=True)
    outside.mkdir(mode=0o777)
    outside.chmod(0o777)
    shutil.copytree(repository, root, symlinks=True)
    if attempt.prepare is not None:
        attempt.prepare(root)
    private = _home(home)
    if os.getuid() == 0:
        for path in (root, *root.rglob("*")):
            if path.name != "asroot":
                os.chown(path, OTHER, OTHER, follow_symlinks=False)
    with ExitStack() as stack:
        sandbox = await start(SandboxPolicy(tier=tier, memory_mb=256, pids=64), root)
        try:
            return await _within(stack, attempt, sandbox, root, home, outside, private)
        finally:
            await sandbox.close()


async def _within(
    stack: ExitStack, attempt: Attempt, sandbox, root: Path, home: Path, outside: Path, private: list[Path]
) -> list[str]:
    victim = outside / "victim"
    victim.write_text(KEPT)
    victim.chmod(0o666)
    for path in (*private, outside, victim):
        path.chmod(0o777 if path.is_dir() else 0o666)
        if os.getuid() == 0:
            os.chown(path, sandbox.uid, -1)
    held = stack.enter_context(victim.open("r+"))
    host = subprocess.Popen(
        ["sleep", "600"],
        env={"PATH": "/usr/bin:/bin", "OPENAI_API_KEY": SECRET},
        cwd=outside,
        pass_fds=[held.fileno()],
        user=sandbox.uid if os.getuid() == 0 else None,
        start_new_session=True,
    )
    stack.callback(host.wait)
    stack.callback(host.kill)
    listeners = _listeners(stack, outside, home)
    names = {
        kind: listener.getsockname()[1]
        for kind, listener in listeners.items()
        if listener.family == socket.AF_INET
    }
    for kind, address, port in (
        (socket.SOCK_STREAM, "tcp", names["tcp"]),
        (socket.SOCK_DGRAM, "udp", names["udp"]),
    ):
        listener = stack.enter_context(socket.socket(socket.AF_UNIX, kind))
        listener.bind(f"\0etude-escape-{port}")
        if kind == socket.SOCK_STREAM:
            listener.listen()
        listener.setblocking(False)
        listeners[f"abstract {address}"] = listener
    shared = Path(f"/dev/shm/etude-escape-{names['tcp']}")
    shared.write_text(KEPT)
    shared.chmod(0o666)
    stack.callback(lambda: shared.unlink(missing_ok=True))
    terminal, slave = os.openpty()
    stack.callback(os.close, terminal)
    stack.callback(os.close, slave)
    os.fchmod(slave, 0o666)
    os.set_blocking(terminal, False)
    segment = _libc.shmget(0x45545544, 4096, 0o1666)
    stack.callback(lambda: _libc.shmctl(segment, 0, None))
    _fill(segment)
    stage = Stage(
        sandbox=sandbox,
        root=root,
        home=home,
        outside=outside,
        victim=victim,
        host=host.pid,
        tcp=names["tcp"],
        udp=names["udp"],
        terminal=os.ttyname(slave),
        shared_memory=segment,
    )
    before = _facts(stage, private)
    program = attempt.text(stage)
    if program.startswith("#py"):
        argv = ["/usr/bin/python3", "-I", "-c", f"{PRELUDE}print('begun', flush=True)\n{program[3:]}"]
    else:
        argv = ["bash", "-c", f"echo begun; {program}"]
    try:
        ran = await sandbox.run(argv, timeout_s=15)
    except (SandboxDied, ToolTimeout) as error:  # refused in its own way
        ran = Ran(137, b"begun", str(error).encode())
    await asyncio.sleep(0.02)
    found = [] if ran.stdout.startswith(b"begun") else [f"it did not even begin: {ran.stderr!r}"]
    output = ran.stdout + ran.stderr
    if SECRET.encode() in ran.stdout:
        found.append("it read the secret")
    if ESCAPED in output:
        found.append(f"it says so: {output.decode('utf-8', 'replace')[:300]}")
    if attempt.escaped is not None and attempt.escaped(stage, ran):
        found.append(f"its own sign: {output.decode('utf-8', 'replace')[:300]}")
    found += _observed(stage, listeners, terminal, shared, host)
    after = _facts(stage, private)
    found += [
        f"{name}: {value} became {after.get(name)}"
        for name, value in before.items()
        if value != after.get(name)
    ]
    await sandbox.close()
    if (root / "evil").exists():
        found += _git_of_the_host_runs(stage)
    return found


def _home(home: Path) -> list[Path]:
    private = []
    for name, text in (
        (".ssh/id_rsa", KEPT),
        (".bashrc", "export KEPT=1"),
        (".cargo/credentials.toml", KEPT),
        (".cargo/bin/tool", "#!/bin/sh\n"),
        (".local/share/etude/token", KEPT),
    ):
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        private += [path, path.parent]
    return private


def _listeners(stack: ExitStack, outside: Path, home: Path) -> dict[str, socket.socket]:
    made = {
        "tcp": socket.create_server(("127.0.0.1", 0)),
        "udp": socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
        "docker": socket.socket(socket.AF_UNIX),
        "agent": socket.socket(socket.AF_UNIX),
        "log": socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM),
    }
    made["udp"].bind(("127.0.0.1", 0))
    for kind, path in (
        ("docker", outside / "docker.sock"),
        ("agent", home / ".ssh" / "agent.sock"),
        ("log", outside / "log.sock"),
    ):
        here = os.getcwd()
        os.chdir(path.parent)  # names of sockets are short
        try:
            made[kind].bind(path.name)
        finally:
            os.chdir(here)
        path.chmod(0o777)
        if kind != "log":
            made[kind].listen()
    for listener in made.values():
        stack.enter_context(listener)
        listener.setblocking(False)
    return made


def _fill(segment: int) -> None:
    _libc.shmat.restype = ctypes.c_void_p
    place = _libc.shmat(segment, None, 0)
    ctypes.memmove(place, KEPT.encode(), len(KEPT))
    _libc.shmdt(ctypes.c_void_p(place))


def _facts(stage: Stage, private: list[Path]) -> dict[str, object]:
    """What must be the same afterwards."""
    facts: dict[str, object] = {}
    for path in (*private, stage.outside, stage.victim, stage.root, *map(Path, _DEVICES)):
        with suppress(FileNotFoundError):
            status = path.stat()
            facts[f"mode of {path}"] = oct(status.st_mode)
            if path.is_file() and not str(path).startswith("/dev"):
                facts[f"content of {path}"] = path.read_text()
                facts[f"time of {path}"] = status.st_mtime_ns
    for place in (stage.outside, stage.home / ".ssh", stage.home / ".cargo"):
        facts[f"names in {place}"] = sorted(os.listdir(place)) if place.is_dir() else None
    with suppress(ProcessLookupError, FileNotFoundError):
        facts["priority of the process"] = os.getpriority(os.PRIO_PROCESS, stage.host)
        facts["scheduler of the process"] = os.sched_getscheduler(stage.host)
        facts["limits of the process"] = Path(f"/proc/{stage.host}/limits").read_text()
    for name in _SETTINGS:
        facts[f"setting {name}"] = Path("/proc/sys", name).read_text()
    for name in ("shell.rc", "supervisor.sh", "runner.sh"):
        path = stage.sandbox.run_folder / name
        facts[f"control {name}"] = path.read_text() if path.exists() else None
    facts["names of control"] = (
        sorted(name for name in os.listdir(stage.sandbox.run_folder) if name.isalpha())
        if stage.sandbox.run_folder.exists()
        else None
    )
    return facts


def _observed(
    stage: Stage,
    listeners: dict[str, socket.socket],
    terminal: int,
    shared: Path,
    host: "subprocess.Popen[bytes]",
) -> list[str]:
    found = []
    if host.poll() is not None:
        found.append(f"a process outside ended ({host.returncode})")
    for name, listener in listeners.items():
        with suppress(BlockingIOError):
            if listener.type == socket.SOCK_STREAM:
                listener.accept()[0].close()
            else:
                listener.recv(100)
            found.append(f"it reached the listener {name}")
    with suppress(BlockingIOError):
        if os.read(terminal, 100):
            found.append("it wrote to a terminal")
    if shared.read_text() != KEPT:
        found.append("it wrote shared memory")
    for path in stage.root.rglob("*"):
        with suppress(OSError):
            mode = path.lstat().st_mode
            if mode & 0o6000 and path.name != "asroot":
                found.append(f"{path.name} has mode {mode:o}")
            if path.is_block_device() or path.is_char_device():
                found.append(f"{path.name} is a device")
    return found


def _git_of_the_host_runs(stage: Stage) -> list[str]:
    """What a person does next, with their own git: nothing of the workspace may run."""
    mark = stage.outside / "ran"
    git = ["git", "-c", "safe.directory=*", "-c", "user.name=x", "-c", "user.email=x@x"]
    for folder in (stage.root, stage.root / "sub", stage.root / "nested"):
        if not folder.is_dir():
            continue
        for words in (
            ["status"],
            ["diff"],
            ["st"],
            ["add", "tracked"],
            ["commit", "-q", "--allow-empty", "-m", "x"],
            ["log", "-1"],
        ):
            with suppress(subprocess.TimeoutExpired):
                subprocess.run(
                    [*git, *words],
                    cwd=folder,
                    capture_output=True,
                    timeout=10,
                    stdin=subprocess.DEVNULL,
                    check=False,
                    env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LC_ALL": "C"},
                )
    return ["git outside ran a program of the workspace"] if mark.exists() else []
