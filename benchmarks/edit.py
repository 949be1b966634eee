"""What an edit costs in a file of 20,000 lines: locating and applying by every tier, a miss, and the write.

    python -m benchmarks.edit [--quick] [--json] [--only GROUP]

Process time, the least of many runs; for the write, a ratio.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.measure import Budget, Group, Measure, main
from tools.edit import EditError, apply_edits
from tools.files import replace

LINES = 20_000
RUNS = 40


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


ENDINGS = {"LF": "\n", "CRLF": "\r\n"}
FOUND = {
    (name, ending): Budget(f"locate and apply, {name}, {ending}", "ms", 3)
    for ending in ENDINGS
    for name in HITS
}
MISSED = {(name, ending): Budget(f"{name}, {ending}", "ms", 100) for ending in ENDINGS for name in MISSES}
WRITE = Budget("write against a bare synced write", "×", 3)


def locate(quick: bool = False) -> Iterator[Measure]:
    """Milliseconds to locate and apply one edit, by tier (the detail) and line ending; and to fail."""
    runs = RUNS // 2 if quick else RUNS
    for label, ending in ENDINGS.items():
        data = source(ending)
        for name, (old, tier) in HITS.items():
            edits = [{"old": old, "new": "    value = None\n"}]
            found = apply_edits(data, edits).hunks[0].tier
            if found != tier:
                raise AssertionError(f"{name} was found by {found}, expected {tier}")
            cost = least(lambda data=data, edits=edits: apply_edits(data, edits), runs)
            yield FOUND[name, label].of(cost, tier)
        for name, old in MISSES.items():
            cost = least(lambda data=data, old=old: missed(data, old), runs // 4)
            yield MISSED[name, label].of(cost)


def missed(data: bytes, old: str) -> None:
    try:
        apply_edits(data, [{"old": old, "new": "x\n"}])
    except EditError:
        return
    raise AssertionError("a text that is not there was found")


def least(action: Callable[[], object], runs: int) -> float:
    """Milliseconds of process time of the cheapest of some runs."""
    best = float("inf")
    for _ in range(runs):
        began = time.process_time()
        action()
        best = min(best, time.process_time() - began)
    return best * 1000


def write(folder: Path, quick: bool = False) -> Measure:
    """A durable replacement against a plain write that is synced: the ratio of their median wall times.

    They take turns, so that whatever else the disk does slows both. (Least times would compare a synced
    write that found the journal just committed with a replacement that syncs twice.)
    """
    data = source()
    (folder / "bare").write_bytes(data)
    (folder / "ours").write_bytes(data)
    bare: list[float] = []
    ours: list[float] = []
    for _ in range(30 if quick else 60):
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
    return WRITE.of(ratio, f"bare {statistics.median(bare) * 1000:.1f} ms")


def _write(quick: bool) -> Iterator[Measure]:
    with tempfile.TemporaryDirectory() as folder:
        yield write(Path(folder).resolve(), quick)


GROUPS = {
    "locate": Group(locate, (*FOUND.values(), *MISSED.values())),
    "write": Group(_write, (WRITE,)),
}

if __name__ == "__main__":
    sys.exit(main(GROUPS, __doc__))
