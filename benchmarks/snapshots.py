"""What a snapshot of a workspace costs, and going back: the published source of Django; 50,000 small files.

    python -m benchmarks.snapshots [--quick] [--json] [--only GROUP]

Processor time of the process, the least of several runs.
"""

import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Budget, Group, Measure, main
from tests.support.published import published_source
from tools.snapshots import SnapshotStore

RUNS = 8
EDITS = 10
SETTLED_S = 0.05
"""Longer than a tick of the clock that stamps files: what was written before it need not be read again."""

UNCHANGED = Budget("snapshot of 6,801 files, nothing changed", "ms", 100)
EDITED = Budget("snapshot of 6,801 files after 10 edits", "ms", 100)
BACK = Budget("restore of 10 edits, behind its snapshot of now", "ms", 80)
FIRST = Budget("first snapshot of 6,801 files", "CPU-s", 4)
MANY = Budget("snapshot of 50,000 files, nothing changed", "ms", 600)


def source(quick: bool = False) -> Iterator[Measure]:
    """A real package: the first snapshot, one after ten edits, and back to before them."""
    with tempfile.TemporaryDirectory() as folder:
        root = published_source("Django", "5.1.1", Path(folder).resolve())
        store = SnapshotStore(Path(folder) / "snapshots")
        began = time.process_time()
        first = asyncio.run(store.take(root))
        yield FIRST.of(time.process_time() - began, f"{first.files} files, {first.written >> 20} MiB stored")
        time.sleep(SETTLED_S)
        asyncio.run(store.take(root))
        runs = RUNS // 2 if quick else RUNS
        yield UNCHANGED.of(min(_took(store, root) for _ in range(runs)))
        files = sorted(root.rglob("*.py"))
        edited: list[float] = []
        back: list[float] = []
        for number in range(runs):
            for path in random.Random(number).sample(files, EDITS):
                path.write_bytes(path.read_bytes() + b"# changed\n")
            time.sleep(SETTLED_S)
            edited.append(_took(store, root))
            time.sleep(SETTLED_S)
            began = time.process_time()
            restored = asyncio.run(store.restore(root, first.tree))
            back.append((time.process_time() - began) * 1000 - restored.before.cpu_ms)
            if len(restored.changed) != EDITS or restored.kept:
                raise AssertionError(f"{len(restored.changed)} files came back, expected {EDITS}")
        yield EDITED.of(min(edited))
        yield BACK.of(min(back))


def many(quick: bool = False) -> Iterator[Measure]:
    """A tree of 50,000 files, as dependencies make them."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve() / "many"
        for number in range(2_000):
            made = root / f"package{number}" / "lib"
            made.mkdir(parents=True)
            for name in range(25):
                (made / f"{name}.js").write_bytes(b"%d %d\n" % (number, name % 3))
        store = SnapshotStore(Path(folder) / "snapshots")
        for _ in range(20):  # as far as the budget of one goes; the next goes on from there
            if not asyncio.run(store.take(root)).partial:
                break
        time.sleep(SETTLED_S)
        asyncio.run(store.take(root))
        yield MANY.of(min(_took(store, root) for _ in range(3)))


def _took(store: SnapshotStore, root: Path) -> float:
    """Milliseconds of process time of one snapshot."""
    began = time.process_time()
    snapshot = asyncio.run(store.take(root))
    if snapshot.partial:
        raise AssertionError("the snapshot is partial")
    return (time.process_time() - began) * 1000


GROUPS = {
    "source": Group(source, (FIRST, UNCHANGED, EDITED, BACK)),
    "many": Group(many, (MANY,), quick=False),
}

if __name__ == "__main__":
    sys.exit(main(GROUPS, __doc__))
