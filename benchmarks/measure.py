"""What a benchmark says: figures and budgets, measured again when missed, printed as a table or as JSON.

A file of benchmarks holds `GROUPS` and only measures; `main` here is what runs when it is started by itself.
"""

import argparse
import asyncio
import json
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import psutil

BROKE = 2
REPEATS = 2
"""How often a missed budget is measured again. The best counts: a loaded machine errs upward only."""
PRIORITY = 1
"""The lowest of the real-time priorities: enough to run before everything that has none."""
BUSY = 0.6
"""The share of time in which something waits for a processor from which on a wall time says nothing."""
PRESSURE = Path("/proc/pressure/cpu")


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure. `most`: it must not be above its budget; otherwise not below it.

    `busy` says why a missed budget cannot be held against the code: the machine was taken by others.
    """

    name: str
    value: float
    unit: str
    budget: float | None = None
    most: bool = True
    detail: str = ""
    busy: str = ""

    @property
    def within(self) -> bool:
        return self.budget is None or (self.value <= self.budget if self.most else self.value >= self.budget)

    @property
    def kept(self) -> bool:
        return self.within or bool(self.busy)

    def best(self, other: "Measure") -> "Measure":
        """The better of two measurements of the same thing."""
        return min(self, other, key=lambda one: one.value if self.most else -one.value)


@dataclass(frozen=True, slots=True)
class Budget:
    """What a figure must keep: known before it is measured, so that none can be forgotten.

    `wall` marks a wall time, which a machine taken by others makes longer.
    """

    name: str
    unit: str
    bound: float
    most: bool = True
    wall: bool = False

    def of(self, value: float, detail: str = "") -> Measure:
        return Measure(self.name, value, self.unit, self.bound, self.most, detail)


@dataclass(frozen=True, slots=True)
class Group:
    """What is measured together, by a function (or coroutine function) that is told whether to be quick.

    It must yield every budget it names; it may yield figures without a budget besides. Only groups with
    `quick` are part of quick mode.
    """

    measure: Callable[[bool], Iterable[Measure] | Coroutine[Any, Any, Iterable[Measure]]]
    budgets: tuple[Budget, ...]
    quick: bool = True

    def run(self, quick: bool) -> list[Measure]:
        """Raises `RuntimeError` where a budget was not measured."""
        found: dict[str, Measure] = {}
        for _ in range(1 + REPEATS):
            busy, measures = self._once(quick)
            for one in measures:
                best = one.best(found[one.name]) if one.name in found else one
                found[one.name] = best if best.within else replace(best, busy=busy.get(one.name, ""))
            if all(one.kept for one in found.values()):
                break
        forgotten = [budget.name for budget in self.budgets if budget.name not in found]
        if forgotten:
            raise RuntimeError(f"not measured although there is a budget: {', '.join(forgotten)}")
        return list(found.values())

    def _once(self, quick: bool) -> tuple[dict[str, str], Iterable[Measure]]:
        """The figures, and by name why those of wall times say nothing, where they do not."""
        began, waited = time.monotonic(), waiting_s()
        measures = self.measure(quick)
        measures = list(_on_a_loop(measures) if isinstance(measures, Coroutine) else measures)
        share = (waiting_s() - waited) / (time.monotonic() - began)
        if share < BUSY or scheduled_first():
            return {}, measures
        why = f"not judged: something waited for a processor {min(share, 1):.0%} of the time"
        return {budget.name: why for budget in self.budgets if budget.wall}, measures


def waiting_s() -> float:
    """Seconds since the start of the machine in which something that could run waited; 0 where unknown."""
    with suppress(OSError):
        some = PRESSURE.read_text(encoding="ascii").splitlines()[0]
        return int(some.rpartition("total=")[2]) / 1e6
    return 0.0


Groups = Mapping[str, Group]


def main(groups: Groups, description: str | None) -> int:
    """The command line of one file of benchmarks. 1 when a budget is missed, 2 when it could not measure."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, and only what CI measures")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--only", choices=sorted(groups), help="one group of measures")
    arguments = parser.parse_args()
    schedule_first()
    kept = True
    try:
        for one in run(groups, quick=arguments.quick, only=arguments.only):
            kept &= one.kept
            print(as_json(one) if arguments.json else as_line(one), flush=True)
    except Exception:  # told apart from a missed budget, which is 1
        traceback.print_exc()
        return BROKE
    return 0 if kept else 1


def _on_a_loop(measures: Coroutine[Any, Any, Iterable[Measure]]) -> Iterable[Measure]:
    """Run a measurement on the event loop that the server uses."""
    if sys.platform == "win32":
        return asyncio.run(measures)
    import uvloop

    return uvloop.run(measures)


def run(groups: Groups, *, quick: bool, only: str | None = None) -> Iterator[Measure]:
    for name, group in groups.items():
        if only == name or (only is None and (group.quick or not quick)):
            yield from group.run(quick)


def schedule_first() -> None:
    """Ask to run before everything else, with all children: what others do is not to be measured.

    Needs a privilege; without it, nothing changes.
    """
    if hasattr(os, "sched_setscheduler"):
        with suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(PRIORITY))


def scheduled_first() -> bool:
    return hasattr(os, "sched_getscheduler") and os.sched_getscheduler(0) == os.SCHED_RR


def as_json(one: Measure, **more: Any) -> str:
    return json.dumps({**more, **asdict(one), "kept": one.kept}, ensure_ascii=False)


def as_line(one: Measure, committed: float | None = None) -> str:
    """A row of the table: name, figure, budget, the committed figure, and whether the budget was missed."""
    bound = "" if one.budget is None else f"{'≤' if one.most else '≥'} {figure(one.budget)}"
    before = "" if committed is None else f"was {figure(committed)}"
    mark = "" if one.within else "busy" if one.kept else "MISSED"
    told = "; ".join(filter(None, (one.detail, one.busy)))
    detail = f"({told})" if told else ""
    row = f"{one.name:<52} {figure(one.value):>9} {one.unit:<12} {bound:<8} {before:<11} {mark:<7} {detail}"
    return row.rstrip()


def figure(value: float) -> str:
    """Three digits that matter, no exponent."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def machine() -> str:
    """The class of this machine: what a figure depends on, and nothing that names it."""
    memory = round(psutil.virtual_memory().total / 2**30)
    system = f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}"
    cores = os.cpu_count() or 1
    return f"{cores} × {_processor()}, {memory} GiB, {system}, Python {platform.python_version()}"


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def proportional(process: psutil.Process) -> int:
    """Bytes of a process and all below it; a page that several share counts once, divided among them."""
    total = 0
    for one in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # it has ended since
            total += one.memory_full_info().pss
    return total
