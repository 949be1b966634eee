"""Costs of the confined persistent shell: start, command, output, kill, memory. One JSON object a line."""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import psutil

from tools.sandbox import SandboxPolicy, probed, start
from tools.sandbox.processes import descendants
from tools.shell import ShellSession
from tools.workspace import Workspace

EIGHT = """
sleep 300 & setsid sleep 300 & (setsid setsid sleep 300 &) ; nohup sleep 300 >/dev/null 2>&1 &
env -i sleep 300 & (setsid env -i sleep 300 &) ; (trap '' TERM INT; sleep 300) & sleep 300
"""


def _emit(name: str, unit: str, budget: float | None, values: list[float], **more: Any) -> bool:
    """Print one measurement; whether its minimum keeps the budget (a loaded machine lies upward only)."""
    ordered = sorted(values)
    line = {
        "name": name,
        "unit": unit,
        "min": round(ordered[0], 3),
        "p50": round(statistics.median(ordered), 3),
        "p95": round(ordered[int(len(ordered) * 0.95)], 3),
        "n": len(ordered),
        "budget": budget,
        "ok": budget is None or ordered[0] <= budget,
        **more,
    }
    print(orjson.dumps(line).decode(), flush=True)
    return bool(line["ok"])


async def _timed(times: int, action: Callable[[], Awaitable[Any]]) -> list[float]:
    """Milliseconds of each of `times` runs."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        await action()
        found.append((time.perf_counter() - began) * 1000)
    return found


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _peak_kib() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    return 0


async def _shell(session: ShellSession) -> bool:
    good = True
    await session.run("true")
    good &= _emit("echo", "ms", 3, await _timed(200, lambda: session.run("echo hi")))
    good &= _emit("/bin/echo", "ms", None, await _timed(50, lambda: session.run("/bin/echo hi")))
    five = "head -c 5000000 /dev/zero | tr '\\0' 'x' | fold -w 99"
    before = time.process_time()
    good &= _emit("5 MB of output", "ms", 100, await _timed(5, lambda: session.run(five)))
    cpu = (time.process_time() - before) * 1000 / 5
    good &= _emit("5 MB of output, our CPU", "ms", 100, [cpu])
    return good


async def _hundred(session: ShellSession) -> bool:
    base = psutil.Process().memory_info().rss / 1024
    _forget_peak()
    values = await _timed(2, lambda: session.run("head -c 100000000 /dev/zero | tr '\\0' 'y' | fold -w 99"))
    grown = (_peak_kib() - base) / 1024
    return _emit("100 MB of output", "ms", 2000, values) & _emit("100 MB, RSS growth", "MB", 64, [grown])


async def _kill(session: ShellSession) -> bool:
    values, survivors = [], 0
    sandbox = await session.sandbox()
    for _ in range(5):
        outcome = await session.run(EIGHT, timeout_s=0.5)
        values.append(outcome.duration_ms - 500.0)
        survivors += len(descendants(sandbox.init, without=sandbox.own()))
    return _emit("kill of eight children", "ms", 250, values, survivors=survivors) and not survivors


async def _many(policy: SandboxPolicy, folder: Path, count: int) -> bool:
    def root(index: int) -> Path:
        path = folder / str(index)
        path.mkdir()
        return path

    values, sandboxes = [], []
    for index in range(count):
        place = root(index)
        began = time.perf_counter()
        sandbox = await start(policy, place)
        await sandbox.run(["true"])
        values.append((time.perf_counter() - began) * 1000)
        sandboxes.append(sandbox)
    pss = 0.0
    for sandbox in sandboxes:
        for pid in [sandbox.init, *descendants(sandbox.init)]:
            pss += getattr(psutil.Process(pid).memory_full_info(), "pss", 0) / 1e6
    good = _emit("start with a first program", "ms", None, values, sandboxes=count)
    good &= _emit("memory of an idle sandbox", "MB", 2, [pss / count])
    one_off = await _timed(50, lambda: sandboxes[0].run(["true"]))
    good &= _emit("one-off program inside", "ms", None, one_off)
    began = time.perf_counter()
    await asyncio.gather(*(sandbox.close() for sandbox in sandboxes))
    return _emit("close all", "ms", None, [(time.perf_counter() - began) * 1000], sandboxes=count) & good


async def _main(count: int, tier: str, folder: Path) -> int:
    report = await probed()
    policy = SandboxPolicy(tier="bubblewrap" if tier == "auto" and report.confined else "none")
    print(
        orjson.dumps(
            {"name": "machine", "tier": policy.tier, "limits": report.limits, "uid": os.getuid()}
        ).decode()
    )
    (folder / "workspace").mkdir()
    workspace = Workspace(folder / "workspace", policy)
    session = await ShellSession.start(workspace)
    try:
        good = await _shell(session) & await _hundred(session) & await _kill(session)
    finally:
        await workspace.close()
    good &= await _many(policy, folder, count)
    return 0 if good else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sandboxes", type=int, default=64)
    parser.add_argument("--tier", choices=("auto", "none"), default="auto")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="etude-bench-") as name:
        raise SystemExit(asyncio.run(_main(options.sandboxes, options.tier, Path(name).resolve())))
