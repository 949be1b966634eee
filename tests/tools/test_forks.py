"""Forks of one workspace: apart from each other, over a base that stays as it was."""

import asyncio
import hashlib
import os
import random
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tools.delete import Delete
from tools.edit import Edit
from tools.errors import EnvironmentFault, ToolError
from tools.fork_changes import against_tree
from tools.forks import Base, Change, Fork, sweep
from tools.grep import Grep
from tools.move import Move
from tools.read import Read
from tools.sandbox import SandboxPolicy, processes
from tools.shell import Shell
from tools.tool import Tool
from tools.workspace import Workspace

POLICY = SandboxPolicy(tier="bubblewrap")
REPOSITORY = Path(__file__).parents[2]

Maker = Callable[..., Awaitable[Base]]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    (root / "package" / "deep").mkdir(parents=True)
    (root / "file").write_text("one\n")
    (root / "script").write_text("#!/bin/sh\necho script\n")
    (root / "script").chmod(0o755)
    (root / "package" / "a.py").write_text("first = 1\nsecond = 2\n")
    (root / "package" / "deep" / "b.py").write_text("needle = True\n")
    (root / "link").symlink_to("package/a.py")
    (root / "empty").mkdir()
    return root


@pytest.fixture
async def based(tmp_path: Path) -> AsyncIterator[Maker]:
    made: list[Base] = []

    async def make(source: Path, **options: bool) -> Base:
        made.append(await Base.copy(source, tmp_path / "forks", **options))
        return made[-1]

    yield make
    for base in made:
        await base.close()
    assert os.listdir(tmp_path / "forks") == [], "nothing is left behind"


@pytest.fixture(params=["overlay", "copy"])
async def base(request: pytest.FixtureRequest, based: Maker, source: Path) -> Base:
    made = await based(source, overlay=request.param == "overlay")
    if request.param == "overlay" and made.kind != "overlay":
        pytest.skip(f"no overlays here: {made.why}")
    return made


async def call(tool: Tool, workspace: Workspace, **arguments: object) -> str:
    parsed = tool.Arguments(**arguments)
    return (await tool.run(parsed, workspace, lambda text: None)).text  # pyright: ignore[reportArgumentType]


async def sh(fork: Fork, command: str, **policy: object) -> str:
    workspace = fork.workspace(SandboxPolicy(tier="bubblewrap", **policy))  # pyright: ignore[reportArgumentType]
    return await call(Shell(), workspace, command=command)


async def search(workspace: Workspace) -> str:
    try:
        return await call(Grep(), workspace, pattern="needle")
    except EnvironmentFault as error:
        pytest.skip(error.message)  # another account's Python may be here without its programs


def fingerprint(root: Path) -> dict[str, tuple[int, int, str]]:
    """Every entry with its mode, time and content."""
    found: dict[str, tuple[int, int, str]] = {}
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder, name)
            status = path.lstat()
            content = ""
            if stat.S_ISREG(status.st_mode):
                content = hashlib.sha256(path.read_bytes()).hexdigest()
            elif stat.S_ISLNK(status.st_mode):
                content = os.readlink(path)
            found[str(path.relative_to(root))] = (status.st_mode, status.st_mtime_ns, content)
    return found


async def test_forks_do_not_see_each_other_and_the_base_stays(base: Base, source: Path) -> None:
    theirs, before = fingerprint(source), fingerprint(base.lower)
    assert before == theirs
    forks = [await base.fork() for _ in range(3)]
    commands = [
        "echo changed > file; rm -r package/deep; mv script moved; chmod 600 package/a.py; echo n > new",
        "rm -r package empty; mkdir package; echo>package/only; ln -sf file link; touch -d 2001-01-01 file",
        "true",
    ]
    for fork, command in zip(forks, commands, strict=True):
        assert "[exit 0" in await sh(fork, command)
    first, second, third = (fork.root for fork in forks)
    assert (first / "file").read_text() == "changed\n"
    assert not (first / "package" / "deep").exists()
    assert (first / "moved").read_text() == (source / "script").read_text()
    assert stat.S_IMODE((first / "package" / "a.py").stat().st_mode) == 0o600
    assert os.listdir(second / "package") == ["only"]
    assert os.readlink(second / "link") == "file"
    assert fingerprint(third) == theirs
    assert fingerprint(base.lower) == before
    assert fingerprint(source) == theirs
    assert await forks[0].changes() == [
        Change("file", "modified"),
        Change("moved", "added"),
        Change("new", "added"),
        Change("package/a.py", "mode"),
        Change("package/deep", "deleted"),
        Change("script", "deleted"),
    ]
    assert await forks[1].changes() == [
        Change("empty", "deleted"),
        Change("link", "modified"),
        Change("package/a.py", "deleted"),
        Change("package/deep", "deleted"),
        Change("package/only", "added"),
    ]
    assert await forks[2].changes() == []


async def test_tools_and_commands_see_the_same(base: Base) -> None:
    fork = await base.fork()
    workspace = fork.workspace(POLICY)
    assert (await call(Shell(), workspace, command="pwd; echo 'needle = 3' > made.py")).startswith(
        "/workspace\n"
    )
    found = await search(workspace)
    assert "made.py" in found
    assert "package/deep/b.py" in found
    assert "needle = 3" in await call(Read(), workspace, path="/workspace/made.py"), "as commands name it"
    edits = [{"old": "second = 2", "new": "second = 22"}]
    await call(Read(), workspace, path="package/a.py")
    await call(Edit(), workspace, path="package/a.py", edits=edits)
    assert "second = 22" in await call(Shell(), workspace, command="cat a.py", cwd="package")
    assert "now in /workspace/package" in await call(Shell(), workspace, command="cd package; ls")
    await call(Shell(), workspace, command="cd ..; rm made.py; sed -i s/22/33/ package/a.py")
    assert "made.py" not in await search(workspace)
    assert "second = 33" in await call(Read(), workspace, path="package/a.py")
    owners = await call(Shell(), workspace, command="stat -c %U package package/a.py . | sort -u; id -un")
    assert len(set(owners.splitlines()[:2])) == 1, "what a tool wrote belongs to whom commands run as"
    assert await fork.changes() == [Change("package/a.py", "modified")]


async def test_a_link_out_of_a_fork_leads_nowhere(base: Base, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("SECRET")
    fork = await base.fork()
    workspace = fork.workspace(POLICY)
    await call(Shell(), workspace, command=f"ln -s {tmp_path}/secret out; ln -s /workspace/file inside")
    with pytest.raises(ToolError, match="outside"):
        await call(Read(), workspace, path="out")
    assert "one" in await call(Read(), workspace, path="inside")
    with pytest.raises(ToolError, match="outside"):
        await call(Shell(), workspace, command="true", cwd="/proc/self/root")
    assert "No such file" in await call(Shell(), workspace, command=f"cat {tmp_path}/secret {fork.root}/file")


async def test_git_works_in_a_fork_and_its_configuration_is_held(based: Maker, source: Path) -> None:
    def git(*arguments: str) -> None:
        options = ("-c", "user.name=T", "-c", "user.email=t@localhost")
        subprocess.run(["git", "-C", str(source), *options, *arguments], check=True, capture_output=True)

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    base = await based(source)
    fork = await base.fork()
    text = await sh(fork, "git status --short; echo x > file; git commit -qam second; git log --format=%s")
    assert text.startswith("second\nfirst\n[exit 0")
    for attack in ("echo x >> .git/config", "echo x > .git/hooks/pre-commit", "mv .git .moved"):
        assert "[exit 0" not in await sh(fork, attack), attack
    assert {change.path.split("/")[0] for change in await fork.changes()} == {".git", "file"}
    workspace = fork.workspace(POLICY)
    await call(Shell(), workspace, command="true")
    config = fork.root / ".git" / "config"
    fresh = config.with_name("fresh")  # as git and editors replace a file, outside the sandbox
    fresh.write_bytes(config.read_bytes())
    os.chown(fresh, config.stat().st_uid, config.stat().st_gid)
    fresh.rename(config)
    assert "Read-only" in await call(Shell(), workspace, command="echo x >> .git/config")


async def test_a_full_fork_is_an_error_and_touches_no_other(based: Maker, source: Path) -> None:
    base = await based(source)
    if base.kind != "overlay":
        pytest.skip(f"no overlays here: {base.why}")
    small, other = await base.fork(memory_mb=1), await base.fork(memory_mb=1)
    text = await sh(small, "head -c 3000000 /dev/zero > big")
    assert "No space left" in text
    workspace = small.workspace(POLICY)
    await call(Read(), workspace, path="file")
    with pytest.raises(EnvironmentFault, match="disk is full"):
        edits = [{"old": "one", "new": "two" * 1000}]
        await call(Edit(), workspace, path="file", edits=edits)
    assert (small.root / "file").read_text() == "one\n", "unchanged, not cut"
    assert "[exit 0" in await sh(other, "echo two > file")
    assert await other.changes() == [Change("file", "modified")]


async def test_strange_entries_are_copied_as_they_are(based: Maker, source: Path) -> None:
    os.mkfifo(source / "fifo")
    (source / "loop").symlink_to("loop")
    (source / "dangling").symlink_to("/nowhere")
    (source / "first").write_text("linked")
    os.link(source / "first", source / "second")
    Path(os.fsdecode(os.fsencode(source) + b"/\xff\n-rf")).write_text("x")
    with open(source / "sparse", "wb") as file:
        file.truncate(4 << 30)
        file.seek(2 << 30)
        file.write(b"middle")
    (source / "setuid").write_text("x")
    (source / "setuid").chmod(0o4755)
    (source / "locked").mkdir(mode=0o500)
    listening = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(source)
    try:
        listening.bind("socket")
    finally:
        os.chdir(here)
    base = await based(source)
    assert base.lower.joinpath("first").stat().st_ino == base.lower.joinpath("second").stat().st_ino
    assert base.lower.joinpath("sparse").stat().st_blocks * 512 < 1 << 20
    assert stat.S_IMODE(base.lower.joinpath("setuid").stat().st_mode) == 0o755
    assert not base.lower.joinpath("socket").exists()
    fork = await base.fork()
    names = {os.fsencode(path.name) for path in fork.root.iterdir()}
    assert names >= {b"fifo", b"loop", b"dangling", b"\xff\n-rf", b"locked"}
    assert "setuid x" in await sh(fork, "echo setuid $(cat setuid); test -p fifo && test -L loop")
    assert await fork.changes() == []
    listening.close()
    (source / "locked").chmod(0o700)


@pytest.mark.parametrize("seed", range(6))
async def test_what_the_layer_says_is_what_differs(based: Maker, source: Path, seed: int) -> None:
    """Random work in an overlay: reading its upper layer finds what comparing whole trees finds."""
    base = await based(source)
    if base.kind != "overlay":
        pytest.skip(f"no overlays here: {base.why}")
    fork = await base.fork()
    chance = random.Random(seed)
    names = [
        "file",
        "script",
        "package",
        "package/a.py",
        "package/deep",
        "package/deep/b.py",
        "link",
        "empty",
        "n",
        "m",
    ]
    lines = []
    for _ in range(25):
        one, two = chance.choice(names), chance.choice(names)
        lines.append(
            chance.choice(
                [
                    f"echo {chance.random()} > {one}",
                    f"rm -rf {one}",
                    f"mv -T {one} {two}",
                    f"mkdir -p {one}",
                    f"chmod {chance.choice(['700', '755', '644'])} {one}",
                    f"ln -sfn {two} {one}",
                    f"cp -r {one} {two}",
                    f"touch {one}",
                ]
            )
        )
    await sh(fork, "(" + "; ".join(lines) + ") 2>/dev/null")
    assert await fork.changes() == against_tree(base.lower, fork.root)


@pytest.mark.budget
async def test_sixty_four_forks_at_once_are_quick(based: Maker, tmp_path: Path) -> None:
    source = tmp_path / "large"
    for folder in range(70):
        (source / f"d{folder}").mkdir(parents=True)
        for file in range(30):
            (source / f"d{folder}" / f"f{file}").write_text("content\n" * 20)
    base = await based(source)
    if base.kind != "overlay":
        pytest.skip(f"no overlays here: {base.why}")
    begun = time.perf_counter()
    forks = await asyncio.gather(*(base.fork() for _ in range(64)))
    together = time.perf_counter() - begun
    for number, fork in enumerate(forks):
        (fork.root / "d0" / "f0").write_text(str(number))
    assert [(fork.root / "d0" / "f0").read_text() for fork in forks] == [str(number) for number in range(64)]
    closing: list[float] = []
    single: list[float] = []
    for fork in forks:
        begun = time.perf_counter()
        await fork.close()
        closing.append(time.perf_counter() - begun)
    for _ in range(20):
        begun = time.perf_counter()
        fork = await base.fork()
        single.append(time.perf_counter() - begun)
        await fork.close()
    figures = (min(single), together, min(closing))
    print("fork min, 64 at once, close min (ms):", *(round(figure * 1000, 1) for figure in figures))
    assert min(single) < 0.025
    assert min(closing) < 0.050
    assert together < 10, "side by side, on a busy machine"


async def test_sandboxes_of_many_forks_run_side_by_side(based: Maker, source: Path) -> None:
    base = await based(source)
    forks = [await base.fork() for _ in range(6)]
    commands = (sh(fork, f"echo {number} > file; cat file") for number, fork in enumerate(forks))
    texts = await asyncio.gather(*commands)
    assert [text.split()[0] for text in texts] == [str(number) for number in range(6)]


CRASH = """
import asyncio, sys
from pathlib import Path
from tools.forks import Base
from tools.sandbox import SandboxPolicy
from tools.shell_session import ShellSession

async def main():
    base = await Base.copy(Path(sys.argv[1]), Path(sys.argv[2]))
    fork = await base.fork()
    session = ShellSession.of(fork.workspace(SandboxPolicy(tier="bubblewrap")))
    await session.run("mkdir locked; chmod 555 locked; echo x > file; sleep 1000 &")
    print(base._process.pid if base._process else 0, flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


async def test_what_a_killed_server_leaves_is_swept(source: Path, tmp_path: Path) -> None:
    where = tmp_path / "forks"
    script = tmp_path / "crash.py"
    script.write_text(textwrap.dedent(CRASH))
    path = os.pathsep.join([str(REPOSITORY), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path}
    with subprocess.Popen(
        [sys.executable, str(script), str(source), str(where)], stdout=subprocess.PIPE, env=environment
    ) as server:
        assert server.stdout is not None
        holder = int(await asyncio.to_thread(server.stdout.readline))
        assert processes.identify(holder) is not None
        server.send_signal(signal.SIGKILL)
    for _ in range(100):
        if processes.identify(holder) is None:
            break
        await asyncio.sleep(0.05)
    assert processes.identify(holder) is None, "the mounts go with the server"
    assert str(where) not in Path("/proc/self/mountinfo").read_text()
    left = os.listdir(where)
    assert len(left) == 1
    await asyncio.sleep(0.3)  # the sandbox's own processes see the end a moment later
    assert sweep(where) == 1
    assert os.listdir(where) == []
    await (await Base.copy(source, where)).close()
    assert os.listdir(where) == []


async def test_the_next_base_sweeps_too_and_leaves_those_that_live(source: Path, tmp_path: Path) -> None:
    where = tmp_path / "forks"
    old = where / "999999999-1-abcd"
    (old / "lower").mkdir(parents=True)
    (where / "somebody's").mkdir()
    first = await Base.copy(source, where)
    second = await Base.copy(source, where)
    fork = await first.fork()
    await second.close()
    assert (fork.root / "file").read_text() == "one\n"
    await first.close()
    assert os.listdir(where) == ["somebody's"]


async def test_without_its_holder_a_fork_leads_nowhere(based: Maker, source: Path) -> None:
    base = await based(source)
    if base.kind != "overlay":
        pytest.skip(f"no overlays here: {base.why}")
    fork = await base.fork()
    os.kill(base.holder, signal.SIGKILL)
    for _ in range(100):
        if not fork.root.exists():
            break
        await asyncio.sleep(0.02)
    workspace = fork.workspace(POLICY)
    with pytest.raises(EnvironmentFault, match="cannot be opened"):
        await call(Read(), workspace, path="file")
    with pytest.raises(EnvironmentFault):
        await call(Shell(), workspace, command="true")
    with pytest.raises(EnvironmentFault, match="has ended"):
        await base.fork()


async def test_a_source_that_cannot_be_read_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="could not be forked"):
        await Base.copy(tmp_path / "missing", tmp_path / "forks")
    assert os.listdir(tmp_path / "forks") == []


async def test_folders_of_the_base_are_moved_and_deleted_by_tools(base: Base, source: Path) -> None:
    fork = await base.fork()
    workspace = fork.workspace(POLICY)
    await call(Move(), workspace, source="package", target="renamed/inner")
    assert (fork.root / "renamed/inner/deep/b.py").read_text() == "needle = True\n"
    assert (fork.root / "renamed/inner/a.py").stat().st_mode == (source / "package/a.py").stat().st_mode
    await call(Delete(), workspace, path="renamed/inner/deep/")
    await call(Delete(), workspace, path="empty/")
    assert "[exit 0" in await call(Shell(), workspace, command="test ! -e package && ls renamed/inner/a.py")
    assert {(change.path, change.kind) for change in await fork.changes()} == {
        ("empty", "deleted"),
        ("package", "deleted"),
        ("renamed", "added"),
        ("renamed/inner", "added"),
        ("renamed/inner/a.py", "added"),
    }
    other = await base.fork()
    await call(Delete(), other.workspace(POLICY), path="package/")
    assert sorted(path.name for path in other.root.iterdir()) == ["empty", "file", "link", "script"]
