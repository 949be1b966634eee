"""What an edit costs in a file of 20,000 lines: locating and applying by every tier, a miss, and the write.

    python -m benchmarks.edit [--json]

Process time, the least of many runs. Exits with 1 when a budget is missed.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.edit import EditError, apply_edits
from tools.files import replace

LINES = 20_000
LOCATE_MS = 3.0
MISS_MS = 100.0
WRITE_RATIO = 3.0
RUNS = 40


@dataclass(frozen=True, slots=True)
class Measure:
    name: str
    value: float
    unit: str
    budget: float
    tier: str = ""

    @property
    def kept(self) -> bool:
        return self.value <= self.budget


def source(ending: str = "\n") -> bytes:
    """Code of 20,000 lines, most of them alike: the hard case for finding a place."""
    lines: list[str] = []
    for number in range(LINES // 5):
        lines += [
            f"def handler_{number}(request, context):",
            f'    """Answer request number {number} with what the context says."""',
            f"    value = context.get('key_{number}', default=None)",
            "    return render(request, value)",
            "",
        ]
    return (ending.join(lines) + ending).encode()


HITS = {
    "exact": ("    value = context.get('key_3500', default=None)\n", "exact"),
    "trailing space": (
        "    value = context.get('key_3500', default=None)  \n    return render(request, value)\n",
        "trailing-space",
    ),
    "indentation": (
        "value = context.get('key_3500', default=None)\nreturn render(request, value)\n",
        "indentation",
    ),
    "punctuation": ("    value = context.get(‘key_3500’, default=None)\n", "punctuation"),
    "similar": (
        "def handler_3500(request, context):\n"
        '    """Answer reqest number 3500 with what the context says."""\n'
        "    value = context.get('key_3500', default=None)\n",
        "similar",
    ),
}
MISSES = {
    "miss near": "def handler_3500(request, context):\n    something_else()\n    return None\n",
    "miss without a trace": "qqq zzz\nyyyy wwww\n",
    "miss like everything": "    return renderr(reqest, valu)\n    return rrender(xquest, value)\n",
}


def locate() -> Iterator[Measure]:
    """Milliseconds to locate and apply one edit, by tier and line ending; and to fail."""
    for label, data in (("LF", source()), ("CRLF", source("\r\n"))):
        for name, (old, tier) in HITS.items():
            edits = [{"old": old, "new": "    value = None\n"}]
            found = apply_edits(data, edits).hunks[0].tier
            assert found == tier, f"{name} was found by {found}"
            cost = least(lambda data=data, edits=edits: apply_edits(data, edits))
            yield Measure(f"locate and apply, {name}, {label}", cost, "ms", LOCATE_MS, tier)
        for name, old in MISSES.items():
            cost = least(lambda data=data, old=old: missed(data, old))
            yield Measure(f"{name}, {label}", cost, "ms", MISS_MS)


def missed(data: bytes, old: str) -> None:
    try:
        apply_edits(data, [{"old": old, "new": "x\n"}])
    except EditError:
        return
    raise AssertionError("a text that is not there was found")


def least(action: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(RUNS):
        began = time.process_time()
        action()
        best = min(best, time.process_time() - began)
    return best * 1000


def write(folder: Path) -> Measure:
    """A durable replacement against a plain write that is synced: the ratio of their median wall times.

    They take turns, so that whatever else the disk does slows both. (Least times would compare a synced
    write that found the journal just committed with a replacement that syncs twice.)
    """
    data = source()
    (folder / "bare").write_bytes(data)
    (folder / "ours").write_bytes(data)
    bare: list[float] = []
    ours: list[float] = []
    for _ in range(60):
        began = time.perf_counter()
        with (folder / "bare").open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        bare.append(time.perf_counter() - began)
        began = time.perf_counter()
        replace(folder, "ours", data, expected=data)
        ours.append(time.perf_counter() - began)
    ratio = statistics.median(ours) / statistics.median(bare)
    return Measure("write against a bare synced write", ratio, "×", WRITE_RATIO)


def measure() -> Iterator[Measure]:
    yield from locate()
    with tempfile.TemporaryDirectory() as folder:
        yield write(Path(folder).resolve())


def main() -> int:
    parser = argparse.ArgumentParser(description="What an edit costs.")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    arguments = parser.parse_args()
    missed_budgets = 0
    for found in measure():
        missed_budgets += not found.kept
        if arguments.json:
            print(json.dumps({**asdict(found), "kept": found.kept}), flush=True)
        else:
            mark = "ok  " if found.kept else "MISS"
            print(
                f"{mark} {found.name:<45} {found.value:8.2f} {found.unit} (budget {found.budget:g})",
                flush=True,
            )
    return 1 if missed_budgets else 0


if __name__ == "__main__":
    sys.exit(main())
