"""What a sandbox may cost, in each tier. The exact figures are the benchmark's; these bounds hold on a loaded
machine too, so the least of several rounds counts."""

import asyncio
import os
import resource
import time
from pathlib import Path

import pytest

from tests.support.processes import matching
from tools.sandbox import SandboxPolicy, Tier, start
from tools.shell_session import ShellSession
from tools.workspace import Workspace

TIERS: tuple[Tier, ...] = ("bubblewrap", "landlock")
pytestmark = [pytest.mark.budget, pytest.mark.parametrize("tier", TIERS)]


@pytest.fixture
def root(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = open_folder / "home" / "project"
    path.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(path.parent))
    if os.getuid() == 0:
        os.chown(path, 61001, 61001)
    return path


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def test_a_spawn(tier: Tier, root: Path) -> None:
    """Processor time of all its processes, from the start to the end of it, its shells included."""
    took: list[float] = []
    for _ in range(10):
        before = _children_s()
        sandbox = await start(SandboxPolicy(tier=tier), root)
        await sandbox.close()
        took.append(_children_s() - before)
    assert min(took) < 0.06, took


async def test_a_kill_leaves_nothing(tier: Tier, root: Path) -> None:
    mark, took = f"sleep 792.{os.getpid()}", list[float]()
    script = (
        f"for i in 1 2 3 4; do {mark} & setsid {mark} & (setsid env -i {mark} &); "
        f"(trap '' TERM INT; {mark}) & done; {mark.replace('792', '0.3')}"
    )
    for _ in range(3):
        sandbox = await start(SandboxPolicy(tier=tier), root)
        try:
            await sandbox.run(["bash", "-c", script])
            assert len(matching(mark)) >= 16
            began = time.perf_counter()
            sandbox.kill()
            await asyncio.wait_for(asyncio.shield(sandbox.dead), 10)
            while matching(mark) and time.perf_counter() - began < 5:
                await asyncio.sleep(0)
            took.append(time.perf_counter() - began)
        finally:
            await sandbox.close()
    assert min(took) < 0.25, took


async def test_much_output(tier: Tier, root: Path) -> None:
    workspace = Workspace(root, SandboxPolicy(tier=tier))
    try:
        session = await ShellSession.start(workspace)
        await session.run("head -c 5000000 /dev/zero | tr '\\0' x | fold -w 99")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        ours = time.process_time()
        outcome = await session.run("head -c 100000000 /dev/zero | tr '\\0' x | fold -w 99")
        ours = time.process_time() - ours
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert outcome.size > 100_000_000
        assert ours < 2
        assert (after - before) / 1024 < 64
    finally:
        await workspace.close()
