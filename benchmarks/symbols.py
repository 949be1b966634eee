"""What the index costs on 4,000 files: cold, after a change, and to ask where a name is defined.

    python -m benchmarks.symbols [--quick] [--json] [--only GROUP]

The files are a published framework's. Processor time where it is asked of the code, of the child process that
indexes and of this one; wall time of a question, from the tool's call to its answer.
"""

import asyncio
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from zlib import crc32

import psutil

from benchmarks.measure import Budget, Group, Measure, main
from tests.support.calling import call
from tests.support.published import published_source
from tools.index import Index
from tools.index.languages import language_of
from tools.ripgrep import binary
from tools.sandbox.policy import SandboxPolicy
from tools.symbols import Symbols
from tools.workspace import Workspace

FILES = 4_000
NAMES = ("QuerySet", "force_str", "Model", "get_queryset", "HttpResponse", "reverse", "connect", "Lookup")

COLD = Budget("index 4,000 files, cold, processor time", "s", 5)
AGAINST_PARSING = Budget("index 4,000 files, cold, against bare parsing", "×", 6)
MEMORY = Budget("memory of the indexing process, most", "MB", 400)
CHANGED = Budget("index one changed file, processor time", "ms", 20)
DEFINITION = Budget("find a definition, p50", "ms", 5, wall=True)
DEFINITION_CPU = Budget("find a definition, processor time of both processes", "ms", 5)
AGAINST_RG = Budget("find a definition against ripgrep", "×", 1, wall=True)
UNCHANGED = Budget("see that nothing changed, p50", "ms", 5, wall=True)

PARSING = """
import sys, time
from pathlib import Path
from tools.index.languages import language, language_of
import tree_sitter

parsers = {}
spent = 0.0
for path in Path(sys.argv[1]).rglob("*"):
    name = language_of(path.name) if path.is_file() else None
    if name is None:
        continue
    if name not in parsers:
        parsers[name] = tree_sitter.Parser(tree_sitter.Language(language(name).grammar()))
    data = path.read_bytes()
    began = time.process_time()
    parsers[name].parse(data)
    spent += time.process_time() - began
print(spent)
"""


def repository(folder: Path) -> Path:
    """4,000 of a framework's files: all code in it, then others as a hash of their names picks them."""
    source = published_source("django", "5.2.8", folder / "source")
    files = [path for path in sorted(source.rglob("*")) if path.is_file() and not path.is_symlink()]
    files.sort(
        key=lambda path: (language_of(path.name) is None, crc32(str(path.relative_to(source)).encode()))
    )
    for path in files[:FILES]:
        target = folder / "repository" / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return folder / "repository"


@asynccontextmanager
async def opened(root: Path, cache: Path) -> AsyncIterator[Workspace]:
    workspace = Workspace(root, SandboxPolicy(), cache=cache)
    try:
        yield workspace
    finally:
        await workspace.close()


def spent(workspace: Workspace) -> float:
    """Seconds of processor time the child has used."""
    assert workspace.indexer is not None and workspace.indexer.pid is not None
    times = psutil.Process(workspace.indexer.pid).cpu_times()
    return times.user + times.system


async def measured(quick: bool) -> list[Measure]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve()
        root = await asyncio.to_thread(repository, folder)
        code = await asyncio.to_thread(_code_files, root)
        async with opened(root, folder / "cache") as workspace:
            index = Index.of(workspace)
            while not (await index.ready(120)).complete:
                continue
            cold = spent(workspace)
            assert workspace.indexer is not None
            peak = _peak(workspace.indexer.pid or 0)
            changed = await _changed(workspace, 10 if quick else 40)
            questions = await _questions(workspace, 10 if quick else 40)
        root_of_rooms = str(Path(__file__).resolve().parents[1])
        command = [sys.executable, "-c", PARSING, str(root)]
        bare = await asyncio.to_thread(
            subprocess.run, command, cwd=root_of_rooms, capture_output=True, text=True, check=True
        )
        parsing = float(bare.stdout)
        with_rg = await asyncio.to_thread(_ripgrep, root, 3 if quick else 10)
    wall, processor, unchanged = questions
    return [
        COLD.of(cold, f"{code} of them code"),
        AGAINST_PARSING.of(cold / parsing, f"bare {parsing:.1f} s"),
        MEMORY.of(peak),
        CHANGED.of(changed * 1000),
        DEFINITION.of(wall * 1000),
        DEFINITION_CPU.of(processor * 1000),
        AGAINST_RG.of(wall / with_rg, f"ripgrep {with_rg * 1000:.0f} ms"),
        UNCHANGED.of(unchanged * 1000),
    ]


def _code_files(root: Path) -> int:
    return sum(path.is_file() and language_of(path.name) is not None for path in root.rglob("*"))


def _peak(pid: int) -> float:
    """The most memory a process has had, in MB."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1000
    return psutil.Process(pid).memory_info().rss / 1e6


async def _changed(workspace: Workspace, rounds: int) -> float:
    """Seconds of processor time for one file of usual size that changed, on average over many."""
    index = Index.of(workspace)
    files = [path for path in sorted(workspace.root.rglob("*.py")) if 5_000 < path.stat().st_size < 20_000]
    before = spent(workspace)
    for number, file in zip(range(rounds), files, strict=False):
        with file.open("a") as added:
            added.write(f"\n\ndef added_{number}():\n    return {number}\n")
        await index.refresh(timeout_s=30)
    return (spent(workspace) - before) / rounds


async def _questions(workspace: Workspace, rounds: int) -> tuple[float, float, float]:
    """Median wall time of a question, mean processor time of both processes, median of a bare refresh."""
    index, tool = Index.of(workspace), Symbols()
    times: list[float] = []
    bare: list[float] = []
    own, child = time.process_time(), spent(workspace)
    for _ in range(rounds):
        for name in NAMES:
            began = time.perf_counter()
            result = await call(tool, workspace, query=name)
            times.append(time.perf_counter() - began)
            if not result.data["found"]:
                raise AssertionError(f"{name} was not found")
    used = (time.process_time() - own + spent(workspace) - child) / len(times)
    for _ in range(rounds):
        began = time.perf_counter()
        await index.refresh()
        bare.append(time.perf_counter() - began)
    return statistics.median(times), used, statistics.median(bare)


def _ripgrep(root: Path, rounds: int) -> float:
    """Median wall time of ripgrep for the same questions, as one would ask it."""
    times: list[float] = []
    for _ in range(rounds):
        for name in NAMES[:4]:
            began = time.perf_counter()
            command = [str(binary()), "-n", rf"(class|def)\s+{name}\b", str(root)]
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            times.append(time.perf_counter() - began)
    return statistics.median(times)


GROUPS = {
    "index": Group(
        measured,
        (COLD, AGAINST_PARSING, MEMORY, CHANGED, DEFINITION, DEFINITION_CPU, AGAINST_RG, UNCHANGED),
    ),
}

if __name__ == "__main__":
    sys.exit(main(GROUPS, __doc__))
