"""How well `search` finds, what it and a literal `grep` cost, and that the index changes no answer.

    python -m benchmarks.search [--json] [--only GROUP]

On published sources: Django, on which ranking was tuned, and two packages on which it was not.
"""

import asyncio
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil

from benchmarks.measure import Budget, Group, Measure, main
from tests.support.calling import call, workspace
from tests.support.literals import literals, same
from tests.support.mined import Mined, mine
from tests.support.published import published_source
from tests.support.ranked import Quality, plain_bm25, quality
from tools.grep import Grep
from tools.index import Index
from tools.ranking.places import question_of, ranked
from tools.ranking.prior import prior
from tools.ripgrep import binary
from tools.search import Search
from tools.workspace import Workspace

SEED, PAIRS = 7, 150
PACKAGES = {
    "Django": ("5.1.1", "tuned on"),
    "scrapy": ("2.12.0", "held out"),
    "networkx": ("3.4.2", "held out"),
}
QUERIES = 500
PATTERNS = (r"class \w+Widget\b", r"def (get|set)_\w+_prep_\w+\(", r"(?i)ridge regression", r"^import zlib$")

GAINS = {
    name: Budget(f"recall@5 above plain BM25, {name}", "points", 5, most=False)
    for name in ("Django", "scrapy")
}
QUESTION = Budget("a question, index warm, p95", "ms", 50, wall=True)
LITERAL = Budget("a literal with the index, p95", "ms", 15, wall=True)
DIFFERENT = Budget(f"answers of {QUERIES} that the index changes", "queries", 0)
BESIDE_RG = Budget("grep without the index beyond bare ripgrep, most", "ms", 20, wall=True)
BESIDE_RG_CPU = Budget("… processor time of our own process", "ms", 20)
CHANGED = Budget("a changed file, until all of the index has it", "ms", 20, wall=True)


def finding(quick: bool = False) -> Iterator[Measure]:
    """Recall@5 and mean reciprocal rank of ours and of plain BM25, on the same questions and files."""
    for name, (version, use) in PACKAGES.items():
        with tempfile.TemporaryDirectory() as folder:
            mined = mine(published_source(name, version, Path(folder)), SEED, PAIRS)
            ours = quality(mined, asyncio.run(_answers(mined)))
            plain = quality(mined, plain_bm25(mined))
            fair = quality(mined, plain_bm25(mined, prior))
        detail = f"{len(mined.pairs)} questions {mined.digest}, {len(mined.texts)} files, {use}"
        gain = 100 * (ours.recall - plain.recall)
        if name in GAINS:
            yield GAINS[name].of(gain, detail)
        else:
            yield Measure(f"recall@5 above plain BM25, {name}", gain, "points", detail=detail)
        for label, one in (("search", ours), ("plain BM25", plain), ("BM25 with our priors", fair)):
            yield from _told(name, label, one)


def _told(name: str, label: str, one: Quality) -> Iterator[Measure]:
    yield Measure(f"recall@5, {name}, {label}", 100 * one.recall, "%")
    yield Measure(f"mean reciprocal rank, {name}, {label}", one.reciprocal, "")


async def _answers(mined: Mined) -> list[list[str]]:
    async with _indexed(mined.root) as (_, index):
        return [
            [path for path, _ in ranked(index, question_of(question), most=50).files]
            for question, _ in mined.pairs
        ]


@asynccontextmanager
async def _indexed(root: Path):
    place: Workspace = workspace(root)
    try:
        index = Index.of(place)
        state = await index.ready(300)
        if not state.complete:
            raise RuntimeError(f"the index did not become complete: {state}")
        yield place, index
    finally:
        await place.close()


async def cost(quick: bool = False) -> Iterable[Measure]:
    """Times on Django's 6,801 files: the least of three for each query, then the percentile over queries."""
    found: list[Measure] = []
    with tempfile.TemporaryDirectory() as folder:
        mined = mine(published_source("Django", PACKAGES["Django"][0], Path(folder)), SEED, 60)
        async with _indexed(mined.root) as (place, index):
            child = psutil.Process(index.indexer.pid).cpu_times()
            found.append(Measure("building the index, 6,801 files", child.user + child.system, "CPU-s"))
            times = [await _least(Search(), place, query=question) for question, _ in mined.pairs]
            found.append(QUESTION.of(_percentile(times, 95), f"median {_percentile(times, 50):.1f} ms"))
            patterns = [
                re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text)
                for text in literals(mined.texts, random.Random(SEED), 3 * QUERIES)
            ]
            times = [await _least(Grep(), place, pattern=pattern) for pattern in patterns[:QUERIES]]
            different = told = cut = 0
            for pattern in patterns:
                alike = await same(place, pattern)
                different += alike is False
                told += alike is not None
                cut += alike is None
                if told == QUERIES:
                    break
            found.append(LITERAL.of(_percentile(times, 95), f"median {_percentile(times, 50):.1f} ms"))
            found.append(DIFFERENT.of(different, f"{told} compared; {cut} more have over 1,000 matches"))
            found += await _beside_ripgrep(place)
            changes: list[float] = []
            target = mined.root / "django" / "forms" / "widgets.py"
            for number in range(20):
                target.write_text(target.read_text() + f"# {number}\n")
                began = time.perf_counter()
                await index.refresh()
                changes.append(1e3 * (time.perf_counter() - began))
            found.append(CHANGED.of(_percentile(changes, 50), "a file of 40 kB"))
    return found


async def _beside_ripgrep(place: Workspace) -> list[Measure]:
    """The least of 15 of ours less the least of 15 of ripgrep alone, for the pattern that shows it most."""
    index, place.index = place.index, None
    beyond: list[tuple[float, float, float]] = []
    try:
        for pattern in PATTERNS:
            bare = ours = own = float("inf")
            command = [str(binary()), "--no-config", "--hidden", "--line-number", pattern, str(place.root)]
            for _ in range(15):
                began = time.perf_counter()
                await asyncio.to_thread(subprocess.run, command, stdout=subprocess.DEVNULL)
                bare = min(bare, time.perf_counter() - began)
                began, spent = time.perf_counter(), time.process_time()
                await call(Grep(), place, pattern=pattern)
                ours = min(ours, time.perf_counter() - began)
                own = min(own, time.process_time() - spent)
            beyond.append((1e3 * (ours - bare), 1e3 * own, 1e3 * bare))
    finally:
        place.index = index
    most, own, bare = max(beyond)[0], max(one[1] for one in beyond), max(beyond)[2]
    return [BESIDE_RG.of(most, f"ripgrep {bare:.0f} ms"), BESIDE_RG_CPU.of(own)]


async def _least(tool: Grep | Search, place: Workspace, **arguments: object) -> float:
    """Milliseconds, the least of three."""
    times: list[float] = []
    for _ in range(3):
        began = time.perf_counter()
        await call(tool, place, **arguments)
        times.append(1e3 * (time.perf_counter() - began))
    return min(times)


def _percentile(values: list[float], percent: int) -> float:
    return sorted(values)[min(len(values) * percent // 100, len(values) - 1)]


GROUPS = {
    "finding": Group(finding, tuple(GAINS.values()), quick=False),
    "cost": Group(cost, (QUESTION, LITERAL, DIFFERENT, BESIDE_RG, BESIDE_RG_CPU, CHANGED), quick=False),
}

if __name__ == "__main__":
    sys.exit(main(GROUPS, __doc__))
