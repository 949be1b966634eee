"""Costs of the confined persistent shell: command, output, kill, memory, start.

    python -m benchmarks.shell [--quick] [--json] [--only GROUP]

Wall times; of several rounds the calmest counts. Where the machine cannot confine, the shell is measured
unconfined, and the figures say so.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks.measure import Budget, Group, Measure, main, proportional
from tools.sandbox import SandboxPolicy, probed, start
from tools.sandbox.processes import descendants, identify
from tools.shell import ShellSession
from tools.workspace import Workspace

ECHO = Budget("echo in the sandboxed persistent shell", "ms", 3, wall=True)
FIVE = Budget("5 MB of output", "ms", 100, wall=True)
HUNDRED = Budget("100 MB of output", "ms", 2000, wall=True)
GROWTH = Budget("100 MB of output, growth of memory", "MB", 64)
KILL = Budget("kill of eight children that will not die", "ms", 250, wall=True)
SPAWN = Budget("spawn of a sandbox", "ms", 20, wall=True)
MEMORY = Budget("memory of an idle sandbox", "MB", 2)

EIGHT = """
sleep 300 & setsid sleep 300 & (setsid setsid sleep 300 &) ; nohup sleep 300 >/dev/null 2>&1 &
env -i sleep 300 & (setsid env -i sleep 300 &) ; (trap '' TERM INT; sleep 300) & sleep 300
"""
SANDBOXES = 16


async def _policy() -> SandboxPolicy:
    report = await probed()
    return SandboxPolicy(tier=report.tier)


@asynccontextmanager
async def _shell() -> AsyncIterator[ShellSession]:
    """A started shell in an empty workspace."""
    with tempfile.TemporaryDirectory(prefix="etude-bench-") as folder:
        workspace = Workspace(Path(folder).resolve(), await _policy())
        try:
            session = await ShellSession.start(workspace)
            await session.run("true")
            yield session
        finally:
            await workspace.close()


async def _timed(times: int, action: Callable[[], Awaitable[Any]]) -> list[float]:
    """Milliseconds of each of `times` runs."""
    found: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        await action()
        found.append((time.perf_counter() - began) * 1000)
    return found


async def _calmest(rounds: int, times: int, action: Callable[[], Awaitable[Any]]) -> float:
    """The least median of some rounds, in milliseconds."""
    return min([statistics.median(await _timed(times, action)) for _ in range(rounds)])


async def _commands(quick: bool) -> list[Measure]:
    rounds = 4 if quick else 10
    async with _shell() as session:
        tier = (await session.sandbox()).tier
        echo = await _calmest(rounds, 25, lambda: session.run("echo hi"))
        program = await _calmest(rounds, 10, lambda: session.run("/bin/echo hi"))
        made = "head -c 5000000 /dev/zero | tr '\\0' 'x' | fold -w 99"
        before = time.process_time()
        five = await _timed(rounds, lambda: session.run(made))
        cpu = (time.process_time() - before) * 1000 / rounds
    return [
        ECHO.of(echo, f"median, tier {tier}"),
        Measure("/bin/echo in the same shell", program, "ms", detail="median"),
        FIVE.of(min(five), f"least, {cpu:.0f} ms of our processor time"),
    ]


async def _hundred(quick: bool) -> list[Measure]:
    async with _shell() as session:
        base = psutil.Process().memory_info().rss / 1024
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak
        made = "head -c 100000000 /dev/zero | tr '\\0' 'y' | fold -w 99"
        values = await _timed(1 if quick else 3, lambda: session.run(made))
        return [HUNDRED.of(min(values)), GROWTH.of((_peak_kib() - base) / 1024)]


def _peak_kib() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise RuntimeError("this system does not say what a process used at most (VmHWM in /proc/self/status)")


async def _kill(quick: bool) -> list[Measure]:
    values, survivors = list[float](), 0
    async with _shell() as session:
        sandbox = await session.sandbox()
        for _ in range(2 if quick else 5):
            outcome = await session.run(EIGHT, timeout_s=0.5)
            values.append(outcome.duration_ms - 500.0)
            left = descendants(sandbox.init, without=sandbox.own())
            survivors += sum(identify(pid) is not None for pid in left)  # those not reaped yet are dead
    if survivors:
        raise RuntimeError(f"{survivors} processes survived the kill")
    return [KILL.of(min(values), "after the deadline, none survives")]


async def _many(quick: bool) -> list[Measure]:
    count = SANDBOXES // 4 if quick else SANDBOXES
    policy, values, sandboxes = await _policy(), list[float](), list[Any]()
    with tempfile.TemporaryDirectory(prefix="etude-bench-") as folder:
        try:
            for index in range(count):
                (place := Path(folder).resolve() / str(index)).mkdir()
                began = time.perf_counter()
                sandboxes.append(await start(policy, place))
                await sandboxes[-1].run(["true"])
                values.append((time.perf_counter() - began) * 1000)
            memory = sum(proportional(psutil.Process(one.init)) for one in sandboxes) / count / 1e6
            spawn = min(one.spawn_s for one in sandboxes) * 1000
            program = min(await _timed(20, lambda: sandboxes[0].run(["true"])))
        finally:
            await asyncio.gather(*(sandbox.close() for sandbox in sandboxes))
    return [
        SPAWN.of(spawn, f"least of {count}: its processes, until their confinement stands"),
        MEMORY.of(memory, f"proportional, of {count}"),
        Measure("start of a sandbox with a first program", min(values), "ms"),
        Measure("one program in a sandbox that runs", program, "ms"),
    ]


GROUPS = {
    "command": Group(_commands, (ECHO, FIVE)),
    "hundred": Group(_hundred, (HUNDRED, GROWTH)),
    "kill": Group(_kill, (KILL,)),
    "many": Group(_many, (SPAWN, MEMORY)),
}

if __name__ == "__main__":
    sys.exit(main(GROUPS, __doc__))
