"""Memory and processes are bounded: by control groups of either version, and where there are none."""

import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.support.hands import Hands
from tools.sandbox import SandboxPolicy, Tier, cgroups, processes
from tools.workspace import Workspace

HOG = """exec python3 -c '
import time
x = [bytes(1 << 20) + b"x" for _ in range(400)]
print("filled", flush=True)
time.sleep(30)'"""
FORKS = """import os, time
for _ in range(200):
    if os.fork() == 0: time.sleep(20); os._exit(0)
print(*('forked', 'them', 'all'))"""
Opener = Callable[[Tier], Hands]


@pytest.fixture
async def opened(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Opener]:
    made: list[Workspace] = []

    def opener(tier: Tier) -> Hands:
        root = open_folder / "home" / "project"
        root.mkdir(parents=True)
        if os.getuid() == 0:
            os.chown(root, 61001, 61001)
        monkeypatch.setenv("HOME", str(root.parent))
        made.append(Workspace(root, SandboxPolicy(tier=tier, memory_mb=200, pids=48)))
        return Hands(made[-1])

    yield opener
    for workspace in made:
        await workspace.close()


@pytest.mark.parametrize("tier", ["bubblewrap", "landlock"])
async def test_without_control_groups_a_watchdog_and_the_users_limit_hold(
    tier: Tier, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "create", lambda memory_mb, pids: None)
    hands = opened(tier)
    hog = await hands(HOG, timeout_s=25)
    assert hog.data["ended"] == "memory"
    forks = await hands(f'python3 -c "{FORKS}"', timeout_s=20)
    assert "forked them all" not in forks.text
    assert (await hands("ulimit -c; echo still here")).text.startswith("0\nstill here")


@pytest.mark.parametrize("tier", ["bubblewrap", "landlock"])
async def test_the_watchdog_ends_a_background_job_too(
    tier: Tier, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "create", lambda memory_mb, pids: None)
    hands = opened(tier)
    await hands(HOG, background=True)
    sandbox = await hands.session.sandbox()
    deadline, told = time.monotonic() + 20, ""
    while time.monotonic() < deadline and "killed" not in told:
        told = str((await hands("sleep 0.2")).data["notices"])
    assert "together used more than 200 MB" in told
    assert sum(map(processes.resident_bytes, processes.descendants(sandbox.init))) < 200 << 20


@pytest.mark.parametrize("tier", ["bubblewrap", "landlock"])
async def test_control_groups_hold(tier: Tier, opened: Opener) -> None:
    group = cgroups.create(100, 50)
    if group is None:
        pytest.skip("this account may not make control groups here")
    cgroups.remove_soon(group)
    hands = opened(tier)
    hog = await hands(HOG, timeout_s=25)
    sandbox = await hands.session.sandbox()
    assert sandbox.group is not None
    assert set(sandbox.group.kinds) == {"memory", "pids"}
    assert hog.data["exit_code"] == 137
    assert "filled" not in hog.text
    assert "more than 200 MB" in str(hog.data["notices"])
    assert sandbox.group.out_of_memory() >= 1
    forks = await hands(f'python3 -c "{FORKS}"', timeout_s=20)
    assert "forked them all" not in forks.text
    for pid in (sandbox.init, *processes.descendants(sandbox.init)):
        listed = [(folder / "cgroup.procs").read_text().split() for folder in sandbox.group.folders]
        assert processes.identify(pid) is None or all(str(pid) in lines for lines in listed)


@pytest.fixture
def version_2(tmp_path: Path) -> Iterator[Path]:
    """A real version 2 of our own, mounted for the test."""
    if os.getuid() != 0:
        pytest.skip("only root may mount")
    place = tmp_path / "cgroup2"
    place.mkdir()
    if subprocess.run(["mount", "-t", "cgroup2", "none", place], capture_output=True).returncode != 0:
        pytest.skip("control groups of version 2 cannot be mounted here")
    yield place
    subprocess.run(["umount", place], check=True)


def test_version_2_ends_all_at_once(version_2: Path) -> None:
    folder = version_2 / f"etude-{os.getpid()}-test"
    folder.mkdir()
    group = cgroups.ControlGroup((folder,), ())
    with subprocess.Popen(
        ["sh", "-c", "while :; do sleep 9 & sleep 0.01; done"], start_new_session=True
    ) as loop:
        group.add(loop.pid)
        time.sleep(0.3)
        members = [int(line) for line in (folder / "cgroup.procs").read_text().split()]
        assert len(members) > 2
        assert group.kill()
        loop.wait(5)
    cgroups.remove_soon(group)
    assert not folder.exists()
    assert not any(processes.identify(pid) for pid in members if pid != os.getpid())


def test_version_2_with_its_controllers(version_2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real files where this kernel has the controllers in version 2; else the refusal leaves nothing."""
    monkeypatch.setattr(cgroups, "_ROOT", version_2)
    monkeypatch.setattr(cgroups, "_own_groups", lambda: {"": "/"})
    before = sorted(version_2.glob("etude-*"))  # of other servers on this machine
    available = (version_2 / "cgroup.controllers").read_text().split()
    group = cgroups.create(100, 50)
    if not {"memory", "pids"} <= set(available):
        assert group is None
        assert set(version_2.glob(f"etude-{os.getpid()}-*")) <= set(before)
        return
    assert group is not None
    assert group.kinds == ("memory", "pids")
    assert (group.folders[0] / "memory.max").read_text().strip() == str(100 << 20)
    assert (group.folders[0] / "pids.max").read_text().strip() == "50"
    assert group.out_of_memory() == 0
    cgroups.remove_soon(group)


def test_what_either_version_says_of_memory_is_read(tmp_path: Path) -> None:
    for name, text in (
        ("memory.events", "low 0\nhigh 0\nmax 7\noom 2\noom_kill 3\noom_group_kill 0\n"),
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"),
    ):
        folder = tmp_path / name.replace(".", "-")
        folder.mkdir()
        (folder / name).write_text(text)
        assert cgroups.ControlGroup((folder,), ("memory",)).out_of_memory() == 3
