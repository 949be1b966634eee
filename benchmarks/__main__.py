"""Every benchmark, each in a process of its own; its exit status says whether its budgets were met.

    python -m benchmarks [NAME…] [--tries N]

A missed budget is measured again, up to N times in all: a busy machine makes things slower, never faster.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
NAMES = sorted(
    file.stem
    for file in FOLDER.glob("*.py")
    if not file.stem.startswith("_") and '__name__ == "__main__"' in file.read_text(encoding="utf-8")
)


def met(name: str, tries: int) -> bool:
    """Run one benchmark until its budgets are met, at most `tries` times."""
    for attempt in range(1, tries + 1):
        began = time.monotonic()
        print(f"── {name}" + (f", again ({attempt} of {tries})" if attempt > 1 else ""), flush=True)
        code = subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], cwd=FOLDER.parent).returncode
        print(
            f"── {name}: {'met' if code == 0 else 'MISSED'} in {time.monotonic() - began:.0f} s", flush=True
        )
        if code == 0:
            return True
    return False


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure against the budgets.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(NAMES)} (default: all)")
    parser.add_argument("--tries", type=int, default=1, metavar="N", help="measure a missed budget N times")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(NAMES):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    missed = [name for name in arguments.names or NAMES if not met(name, max(1, arguments.tries))]
    if missed:
        print(f"budgets missed: {', '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
