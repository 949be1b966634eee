"""A repository of everything that goes wrong, through every tool: answered in time, or said what is left out.

`ETUDE_TEST_MONSTER` is the number of files. Each call is held to the longest its tool says it takes, and
to what it may cost this process; on top of that comes what a busy machine takes (`SLACK_S`).
"""

import os
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.calling import call, saw
from tests.support.monster import BROKEN_NAME, DEEP, FILES, NEEDLE, Monster, monster
from tests.support.results import keep
from tools import glob, grep, listing, search, symbols
from tools.errors import ToolError
from tools.registry import TOOLS
from tools.result import ToolResult
from tools.sandbox import SandboxPolicy
from tools.workspace import Workspace

SLACK_S = 10.0
AT_ONCE_S = 1.0
LIMIT_S = {
    "read": AT_ONCE_S,
    "list": listing.DEADLINE,
    "glob": glob.DEADLINE,
    "grep": grep.DEADLINE,
    "symbols": symbols.WAIT_S,
    "search": search.WAIT_S,
    "edit": AT_ONCE_S,
    "apply_patch": AT_ONCE_S,
    "write": AT_ONCE_S,
    "delete": AT_ONCE_S,
    "move": AT_ONCE_S,
    "shell": 30.0,
    "diagnostics": 60.0,
}
"""Seconds that a call may take, as its tool states them."""
CPU_S = 5.0
"""Seconds of work that one call may be for the server's own process."""
INDEXED_S = 60 + FILES / 1000
"""Seconds in which an index has to be complete."""

worst: dict[str, dict[str, Any]] = {}


@pytest.fixture(scope="module")
def beast(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monster]:
    folder = tmp_path_factory.mktemp("monster")
    started = time.monotonic()
    made = monster(folder, FILES)
    took = time.monotonic() - started
    yield made
    shutil.rmtree(folder)
    worst_first = dict(sorted(worst.items(), key=lambda item: -item[1]["wall_s"]))
    keep("monster", 0, files=FILES, made_in_s=round(took, 1), slowest_call_of_each_tool=worst_first)


@pytest.fixture
async def place(beast: Monster) -> AsyncIterator[Workspace]:
    guarded = beast.guarded()
    opened = Workspace(beast.root, SandboxPolicy(), cache=beast.root.parent / "cache")
    yield opened
    await opened.close()
    assert beast.guarded() == guarded


async def timed(place: Workspace, name: str, **arguments: Any) -> ToolResult:
    """Call a tool, and hold it to its budget, whether it succeeds or refuses."""
    began, worked = time.monotonic(), time.process_time()
    try:
        result = await call(TOOLS[name], place, **arguments)
        place.seen.update(result.seen)
        return result
    finally:
        wall, cpu = time.monotonic() - began, time.process_time() - worked
        if wall > worst.get(name, {"wall_s": -1})["wall_s"]:
            what = " ".join(str(value) for value in arguments.values())[:60]
            worst[name] = {"wall_s": round(wall, 2), "cpu_s": round(cpu, 2), "what": ascii(what)}
        assert wall <= LIMIT_S[name] + SLACK_S, f"{name} {arguments} took {wall:.1f} s"
        assert cpu <= CPU_S, f"{name} {arguments} worked {cpu:.1f} s"


async def refused(place: Workspace, name: str, **arguments: Any) -> str:
    with pytest.raises(ToolError) as found:
        await timed(place, name, **arguments)
    found.value.message.encode()  # what the model sees can be sent
    return found.value.message


# ---- looking


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("odd/fifo", "never opened"),
        ("odd/socket", "never opened"),
        ("odd/itself", "too many symbolic links"),
        ("odd/ping", "too many symbolic links"),
        ("odd/dangling", "leads to nothing"),
        ("odd/out", "outside the workspace"),
        ("odd/private", "outside the workspace"),
        ("odd/round/up/odd", "is a directory"),
        ("sparse.bin", "NUL bytes"),
        ("odd/caf\ufffd.py", "caf\\xe9.py"),
        ("huge", "more"),
        ("huge/file0.py", "There is no file"),
        ("abyss/" + "a-folder-with-a-long-name/" * (DEEP - 1) + "lost.py", "bytes long"),
    ],
)
async def test_what_cannot_be_read_is_refused_with_the_reason(place: Workspace, path: str, said: str) -> None:
    assert said in await refused(place, "read", path=path)


async def test_what_can_be_read_is(place: Workspace, beast: Monster) -> None:
    names = ["esc\x1b[31mred.py", " spaces .py", "-rf.py", "*.py", BROKEN_NAME, "round/up/odd/-rf.py"]
    for name in names:
        assert NEEDLE in (await timed(place, "read", path=f"odd/{name}")).text
    assert "main" in (await timed(place, "read", path="odd/link.py")).text
    assert "at_the_bottom" in (await timed(place, "read", path=beast.bottom)).text
    for path in ("sub/library.py", "nested/library.py"):
        assert "borrowed" in (await timed(place, "read", path=path)).text
    bundle = await timed(place, "read", path="bundle.min.js")
    assert "more characters clipped" in bundle.text and len(bundle.text) < 10_000


async def test_list_counts_what_it_does_not_show(place: Workspace, beast: Monster) -> None:
    root = await timed(place, "list")
    huge = next(line for line in root.text.splitlines() if line.startswith("huge/"))
    assert f"{beast.in_huge:,} files" in huge or "more than" in huge
    assert len(root.text.encode()) <= place.output_limit
    inside = await timed(place, "list", path="huge")
    assert "incomplete" in inside.text and "more entries" in inside.text
    odd = (await timed(place, "list", path="odd")).text
    for shown in ("fifo  (FIFO)", "socket  (socket)", "itself  -> itself", "caf\\xe9.py", "two\\x0alines.py"):
        assert shown in odd
    odd.encode()
    for path in ("deep", "abyss", "many", "sub", "nested"):
        (await timed(place, "list", path=path)).text.encode()
    assert "Git's own" in await refused(place, "list", path="nested/.git")


async def test_glob_is_complete_or_says_so(place: Workspace, beast: Monster) -> None:
    for arguments in ({"pattern": "**/*.py"}, {"pattern": "*.py", "path": "huge"}, {"pattern": "**"}):
        found = await timed(place, "glob", **arguments)
        assert found.data["incomplete"] and "incomplete" in found.text
        assert len(found.text.encode()) <= place.output_limit + 1_000
    few = await timed(place, "glob", pattern="huge/file00000*.py")
    assert few.data["files"] == 10 and not few.data["incomplete"]
    assert beast.bottom in (await timed(place, "glob", pattern="**/bottom.py")).text
    lost = await timed(place, "glob", pattern="lost.py")
    assert "no file matches" in lost.text and "not all could be read" in lost.text
    assert "/proc/" not in lost.text
    odd = (await timed(place, "glob", pattern="odd/*")).text
    assert "caf\\xe9.py" in odd and "two\\x0alines.py" in odd and "fifo" not in odd
    assert "library.py" in (await timed(place, "glob", pattern="nested/**")).text


async def test_grep_is_complete_or_says_so(place: Workspace, beast: Monster) -> None:
    everywhere = await timed(place, "grep", pattern=NEEDLE)
    assert everywhere.data["incomplete"] and "incomplete" in everywhere.text
    huge = await timed(place, "grep", pattern=NEEDLE, path="huge")
    expected = -(-beast.in_huge // 200)
    assert huge.data["incomplete"] if expected > grep.MATCHES else huge.data["matches"] == expected
    assert (await timed(place, "grep", pattern=r"return\s+total$", path="huge", limit=7)).data["matches"] == 7
    absent = await timed(place, "grep", pattern="absent_everywhere")
    assert absent.data["matches"] == 0 and "not all could be read" in absent.text
    bundle = await timed(place, "grep", pattern=NEEDLE, path="bundle.min.js")
    assert "clipped" in bundle.text and len(bundle.text) < 5_000
    assert (await timed(place, "grep", pattern=NEEDLE, path="odd")).data["matches"] == 6
    assert beast.bottom in (await timed(place, "grep", pattern="at_the_bottom", path="deep")).text
    assert "private" not in everywhere.text and "outside" in await refused(
        place, "grep", pattern=NEEDLE, path="odd/out"
    )
    assert "fifo" in await refused(place, "grep", pattern="x", path="odd/fifo")


@pytest.mark.skipif(FILES < 100_000, reason="reads 4 GB: in the full size alone")
async def test_grep_in_a_sparse_file_ends(place: Workspace) -> None:
    try:
        found = await timed(place, "grep", pattern=NEEDLE, path="sparse.bin")
    except ToolError as error:
        assert "stopped after" in error.message
    else:
        assert found.data["matches"] == 0


async def test_the_index_is_warming_first_and_then_answers(place: Workspace, beast: Monster) -> None:
    cold = await timed(place, "search", query="what a library has borrowed")
    assert cold.data["complete"] or "warming" in cold.text or "being started" in cold.text
    outline = await timed(place, "symbols", path="huge/file000001.py")
    assert "work_1" in outline.text
    for path, said in (("sparse.bin", "16 MiB"), ("bundle.min.js", "bytes"), ("odd/fifo", "fifo")):
        assert said in await refused(place, "symbols", path=path)
    assert place.index is not None
    began = time.monotonic()
    while not (state := await place.index.refresh(timeout_s=5)).complete:
        assert time.monotonic() - began < INDEXED_S, state
    worst["(index complete)"] = {"wall_s": round(time.monotonic() - began, 1), "files": state.done}
    warm = await timed(place, "search", query="what a library has borrowed")
    assert warm.data["complete"]
    if beast.files > 100_000:
        assert "beyond the most files" in warm.text
    else:
        assert "library.py" in warm.text
    for arguments in (
        {"query": "work_7"},
        {"query": "work_7", "kind": "reference"},
        {"query": "inside_strange"},
        {"path": "huge"},
        {"path": "odd"},
        {"path": "deep"},
    ):
        found = await timed(place, "symbols", **arguments)
        assert found.data["complete"]
        found.text.encode()
    (await timed(place, "search", query="total of work value", path="huge")).text.encode()
    literal = await timed(place, "grep", pattern=NEEDLE, path="many/part0001")
    assert literal.data["matches"] == 2


# ---- changing


async def test_changes_are_made_or_refused_with_nothing_changed(place: Workspace, beast: Monster) -> None:
    root = beast.root
    await timed(place, "read", path="bundle.min.js")
    edits = [{"old": f"var {NEEDLE}=3", "new": f"var {NEEDLE}=4"}]
    await timed(place, "edit", path="bundle.min.js", edits=edits)
    assert f"{NEEDLE}=4".encode() in (root / "bundle.min.js").read_bytes()
    await timed(place, "edit", path="bundle.min.js", edits=[{"old": edits[0]["new"], "new": edits[0]["old"]}])
    for path in (f"odd/{BROKEN_NAME}", "odd/-rf.py", beast.bottom, "huge/file000001.py"):
        saw(place, path)
        before = (root / path).read_bytes()
        await timed(place, "edit", path=path, edits=[{"old": "return", "new": "yield"}])
        assert (root / path).read_bytes() == before.replace(b"return", b"yield")
    for path in ("sparse.bin", "odd/fifo", "odd/socket", "odd/itself", "odd/private", "sub/.git"):
        await refused(place, "edit", path=path, edits=[{"old": "a", "new": "b"}])
    await timed(place, "write", path="huge/new.py", content="new = 1\n")
    await timed(place, "write", path="odd/new\nline.py", content="new = 1\n")
    for path in (
        "odd/fifo",
        "odd/out/new.py",
        "nested/.git/hooks/pre-commit",
        "sub/.git",
        "odd/ping",
        "huge",
    ):
        await refused(place, "write", path=path, content="x")
    patch = (
        "*** Begin Patch\n*** Update File: sub/library.py\n@@\n-    return 1\n+    return 2\n"
        "*** Update File: nested/library.py\n@@\n-    return 1\n+    return 2\n"
        "*** Add File: many/part0001/added.py\n+added = 1\n*** End Patch\n"
    )
    await timed(place, "apply_patch", patch=patch)
    assert "return 2" in (root / "nested/library.py").read_text()
    outside = patch.replace("nested/library.py", "odd/private")
    await refused(place, "apply_patch", patch=outside.replace("return 1", "return 2"))


async def test_folders_too_large_to_undo_are_left_to_the_shell(place: Workspace, beast: Monster) -> None:
    root = beast.root
    for path in ("huge/", "many/", "deep/", "nested/", "sub/", "abyss/"):
        await refused(place, "delete", path=path)
    for path in ("huge", "nested", "sub"):
        await refused(place, "move", source=path, target="elsewhere")
    await refused(place, "delete", path="nested/.git/")
    await refused(place, "delete", path="sparse.bin")
    await refused(place, "move", source="main.py", target="odd/out/main.py")
    for name in ("itself", "dangling", "out"):
        await timed(place, "delete", path=f"odd/{name}")
        assert not os.path.lexists(root / "odd" / name)
    for name in ("ping", "private", BROKEN_NAME, "fifo"):
        await timed(place, "move", source=f"odd/{name}", target=f"odd/moved {name}")
        assert os.path.lexists(root / "odd" / f"moved {name}")
    await timed(place, "delete", path="huge/file000002.py")
    assert len(os.listdir(root / "huge")) >= beast.in_huge - 1


# ---- running


async def test_the_shell_sees_all_of_it_and_ends_in_time(place: Workspace, beast: Monster) -> None:
    quiet = "git --no-optional-locks"
    for command, said in (
        (f"{quiet} status --short 2>/dev/null | head -50", "nested/"),
        (f"{quiet} -C sub status --short --branch", "##"),
        (f"{quiet} -C nested status --short --branch", "##"),
        (f"{quiet} submodule status 2>&1", "sub"),
        ("ls huge | wc -l", str(beast.in_huge)[:3]),
        ("ls -la odd", "fifo"),
        ("stat -c %s sparse.bin", str(4 << 30)),
    ):
        ran = await timed(place, "shell", command=command, timeout_s=30)
        assert said in ran.text, ran.text
    long = await timed(place, "shell", command="find . -type f", timeout_s=30)
    assert len(long.text.encode()) <= place.output_limit + 1_000
    assert long.full is None or len(long.full) <= 17 << 20
    stuck = await timed(
        place, "shell", command="cat < odd/socket; cat 'odd/moved fifo' odd/fifo", timeout_s=1
    )
    assert stuck.error == "timeout" or "1 s" in stuck.text, stuck


async def test_diagnostics_says_how_many_files_it_left_out(place: Workspace, beast: Monster) -> None:
    found = await timed(place, "diagnostics", paths=["huge"])
    assert "left out" in found.text or "more file" in found.text, found.text
    odd = await timed(place, "diagnostics", paths=["odd", "deep"])
    odd.text.encode()


def test_every_path_of_the_full_size_is_a_real_file(beast: Monster) -> None:
    count = sum(len(files) for _, _, files in os.walk(beast.root / "huge"))
    count += sum(len(files) for _, _, files in os.walk(beast.root / "many"))
    assert count >= beast.files - 300
    assert (beast.root / "sparse.bin").stat().st_blocks * 512 < 1 << 20
    assert Path(beast.root / beast.bottom).is_file()
