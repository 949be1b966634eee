"""All benchmarks, each in a process of its own, as one table. Exits with 1 when a budget is missed.

python -m benchmarks [--quick] [--json] [--only NAME] [--update-baselines]
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from benchmarks import baselines
from benchmarks.measure import Measure, as_json, as_line, machine, schedule_first, scheduled_first

QUICK = ("edit", "redaction", "shell", "snapshots", "store", "streaming", "serving")
NAMES = (*QUICK, "search", "symbols", "engine", "local_model")
"""Search and the embedded model take minutes: quick mode leaves them out, unless asked for by name."""


def main() -> int:
    arguments = _arguments()
    schedule_first()
    where = machine() + (", scheduled first" if scheduled_first() else "")
    chosen = [arguments.only] if arguments.only else QUICK if arguments.quick else NAMES
    known = baselines.committed()
    found: dict[str, list[Measure]] = {}
    broken: list[str] = []
    began = time.monotonic()
    if not arguments.json:
        print(f"{where}; load {os.getloadavg()[0]:.1f}", flush=True)
    for name in chosen:
        if not arguments.json:
            print(f"\n{name}", flush=True)
        found[name], started = [], time.monotonic()
        for one in _measured(name, arguments.quick, broken):
            found[name].append(one)
            before = known.get((name, one.name))
            print(
                as_json(one, benchmark=name, committed=before)
                if arguments.json
                else "  " + as_line(one, before),
                flush=True,
            )
        if not arguments.json:
            print(f"  ({time.monotonic() - started:.0f} s)", flush=True)
    missed = [one.name for measures in found.values() for one in measures if not one.kept]
    if not arguments.json:
        print(f"\n{_verdict(missed, broken)} ({time.monotonic() - began:.0f} s)")
    if missed or broken:
        return 1
    if arguments.update_baselines:
        if unjudged := [one.name for measures in found.values() for one in measures if not one.within]:
            print(f"nothing is committed from a busy machine: {'; '.join(unjudged)}", file=sys.stderr)
            return 1
        baselines.save(found, where)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="what CI runs, within a minute")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--only", choices=NAMES, help="one benchmark")
    parser.add_argument(
        "--update-baselines",
        action="store_true",
        help="commit these figures: rewrite benchmarks/baselines.json and the tables of docs/benchmarks.md",
    )
    arguments = parser.parse_args()
    if arguments.update_baselines and arguments.quick:
        parser.error("--quick measures too little to be committed: leave it out")
    return arguments


def _measured(name: str, quick: bool, broken: list[str]) -> Iterator[Measure]:
    """What one benchmark measures, as it comes. One that breaks is named in `broken`."""
    command = [sys.executable, "-m", f"benchmarks.{name}", "--json", *(["--quick"] if quick else [])]
    with subprocess.Popen(command, cwd=baselines.ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            fields: dict[str, Any] = json.loads(line)
            fields.pop("kept")
            yield Measure(**fields)
    if process.returncode not in (0, 1):  # it has said why on standard error
        broken.append(name)


def _verdict(missed: list[str], broken: list[str]) -> str:
    parts = []
    if missed:
        parts.append(f"missed: {'; '.join(missed)}")
    if broken:
        parts.append(f"broke off: {', '.join(broken)}")
    return " · ".join(parts) or "every budget was kept"


if __name__ == "__main__":
    sys.exit(main())
