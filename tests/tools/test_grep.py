"""The grep tool: real ripgrep on real trees; limits, memory, links, bad input."""

import gc
import json
import os
import subprocess
import sys
import time
from contextlib import aclosing
from pathlib import Path

import psutil
import pytest

from tests.support.calling import call, workspace
from tools import grep as grep_module
from tools.errors import InvalidArguments, OutsideWorkspace, ToolTimeout
from tools.files import NotFound
from tools.grep import Grep
from tools.ripgrep import Outcome, binary, search
from tools.workspace import Buffer, Workspace


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    root = tmp_path / "work"
    files = {
        "src/app.py": "import os\n\ndef stats(value):\n    return value\n\nprint(stats(1))\n",
        "src/deep/util.py": "STATS = 1\n",
        "docs/readme.md": "about stats\n",
        ".hidden/config": "stats = on\n",
        ".git/HEAD": "stats\n",
        "vendor/.git/config": "stats\n",
        ".gitignore": "build/\n*.log\n",
        "build/out.txt": "stats\n",
        "a.log": "stats\n",
    }
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)
    return workspace(root)


async def grep(place: Workspace, pattern: str, **arguments: object):
    return await call(Grep(), place, pattern=pattern, **arguments)


async def test_matches_are_grouped_by_file_in_order(place: Workspace) -> None:
    result = await grep(place, "stats")
    assert result.text == (
        ".hidden/config\n1:stats = on\ndocs/readme.md\n1:about stats\n"
        "src/app.py\n3:def stats(value):\n--\n6:print(stats(1))\n(4 matches)"
    )
    assert result.data == {"matches": 4, "files": 3, "incomplete": False, "clipped": 0}


@pytest.mark.parametrize(
    ("arguments", "files"),
    [
        ({"path": "src"}, ["src/app.py"]),
        ({"path": "src", "ignore_case": True}, ["src/app.py", "src/deep/util.py"]),
        ({"path": "src/app.py"}, ["src/app.py"]),
        ({"path": "build/out.txt"}, ["build/out.txt"]),
        ({"glob": "*.md"}, ["docs/readme.md"]),
        ({"glob": "!*.md", "path": "docs"}, []),
        ({"glob": "src/*.py"}, ["src/app.py"]),
        ({"glob": "src/**/*.py", "ignore_case": True}, ["src/app.py", "src/deep/util.py"]),
        ({"glob": "src/*.py", "path": "src"}, ["src/app.py"]),
        ({"glob": "deep/*.py", "path": "src", "ignore_case": True}, ["src/deep/util.py"]),
        ({"glob": "**/util.py", "ignore_case": True}, ["src/deep/util.py"]),
        ({"glob": "{docs,src}/*"}, ["docs/readme.md", "src/app.py"]),
    ],
)
async def test_where_it_looks(place: Workspace, arguments: dict[str, object], files: list[str]) -> None:
    result = await grep(place, "stats", **arguments)
    assert [line for line in result.text.split("\n")[:-1] if line[0] not in "0123456789-"] == files


async def test_context_lines(place: Workspace) -> None:
    result = await grep(place, "def stats", context=1)
    assert result.text == "src/app.py\n2-\n3:def stats(value):\n4-    return value\n(1 match)"


async def test_a_pattern_over_lines(place: Workspace) -> None:
    result = await grep(place, r"value\):\n    return", path="src")
    assert result.text == "src/app.py\n3:def stats(value):\n4:    return value\n(1 match)"


async def test_no_match(place: Workspace) -> None:
    assert (await grep(place, "absent_from_all")).text == "(no match)"


@pytest.mark.parametrize("pattern", ["def (", "[a", "*x", "(?<=a)b", "a{2,1}"])
async def test_a_bad_pattern_is_the_callers_fault_and_says_how_to_be_literal(
    place: Workspace, pattern: str
) -> None:
    with pytest.raises(InvalidArguments) as caught:
        await grep(place, pattern)
    assert "regex" in caught.value.message
    literal = caught.value.message.rsplit("use: ", 1)[1]
    (place.root / "literal.txt").write_text(f"x{pattern}y\n")
    assert (await grep(place, literal)).text == f"literal.txt\n1:x{pattern}y\n(1 match)"


@pytest.mark.parametrize(
    "arguments",
    [{"pattern": ""}, {"context": 21}, {"context": -1}, {"limit": 0}, {"glob": "{a"}, {"other": 1}],
)
async def test_bad_arguments(place: Workspace, arguments: dict[str, object]) -> None:
    with pytest.raises(InvalidArguments):
        await call(Grep(), place, **{"pattern": "x", **arguments})


async def test_absent_and_odd_places(place: Workspace) -> None:
    with pytest.raises(NotFound, match="src/"):
        await grep(place, "x", path="scr")
    os.mkfifo(place.root / "pipe")
    with pytest.raises(InvalidArguments, match="fifo"):
        await grep(place, "x", path="pipe")
    assert (await grep(place, "no_such_text")).text == "(no match)"


async def test_a_pattern_that_looks_like_an_option_is_a_pattern(place: Workspace) -> None:
    (place.root / "dash.txt").write_text("--pre=sh -x\n")
    assert "dash.txt" in (await grep(place, "--pre=sh")).text
    assert "dash.txt" in (await grep(place, "-x")).text
    assert (await grep(place, "stats", glob="--pre=sh")).text == "(no match)"


async def test_no_configuration_is_read(place: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.root / "ripgreprc").write_text("--invert-match\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(place.root / "ripgreprc"))
    assert (await grep(place, "stats", path="docs")).text == "docs/readme.md\n1:about stats\n(1 match)"


@pytest.mark.case("agent-15")
async def test_a_one_line_bundle_is_clipped_around_the_match(place: Workspace) -> None:
    bundle = "x" * 400_000 + "stats_here" + "y" * 250_000
    (place.root / "src" / "bundle.js").write_text(bundle)
    result = await grep(place, "stats")
    (line,) = [line for line in result.text.split("\n") if "clipped]" in line]
    assert line.startswith("1:…[399880 bytes clipped]xxx")
    assert "stats_here" in line and len(line) < 600
    assert result.data["clipped"] == 1
    assert result.data["incomplete"] is False
    assert len(result.text) < 2_000


@pytest.mark.case("agent-15")
async def test_a_bundle_where_everything_matches(place: Workspace) -> None:
    (place.root / "src" / "bundle.js").write_text("stats;" * 110_000)
    result = await grep(place, "stats", path="src")
    assert "stats" in result.text and len(result.text) < 2_000


async def test_the_limits_say_that_more_exists(place: Workspace) -> None:
    for number in range(30):
        (place.root / f"many{number}.txt").write_text("hit\n" * 30)
    result = await grep(place, "hit", limit=50)
    assert result.data["matches"] == 50 and result.data["incomplete"] is True
    assert "incomplete: first 50 matches" in result.text
    exact = await grep(place, "hit", path="many1.txt", limit=30)
    assert exact.data == {"matches": 30, "files": 1, "incomplete": False, "clipped": 0}
    wide = "hit " + "z" * 300 + "\n"
    (place.root / "wide.txt").write_text(wide * 1000)
    result = await grep(place, "hit", path="wide.txt", limit=1000, context=0)
    assert "incomplete: first 49 kB" in result.text


async def test_odd_names_and_binary_files(place: Workspace) -> None:
    (place.root / os.fsdecode(b"caf\xe9.txt")).write_text("needle\n")
    (place.root / "new\nline.txt").write_text("needle\n")
    (place.root / "prog").write_bytes(b"needle\n" + b"text\n" * 100_000 + b"\0" * 100)
    result = await grep(place, "needle")
    assert "caf\ufffd.txt\n1:needle" in result.text
    assert "new\\x0aline.txt\n1:needle" in result.text
    assert "1 binary file left out" in result.text
    assert result.data["matches"] == 2


async def test_other_encodings(place: Workspace) -> None:
    (place.root / "latin.txt").write_bytes("café needle\n".encode("latin-1"))
    (place.root / "wide.txt").write_bytes(b"\xff\xfe" + "ä needle\r\n".encode("utf-16-le"))
    (place.root / "marked.txt").write_bytes("\ufeffneedle ö\r\n".encode())
    result = await grep(place, "needle")
    assert result.text == (
        "latin.txt\n1:café needle\nmarked.txt\n1:needle ö\nwide.txt\n1:ä needle\n(3 matches)"
    )


async def test_control_characters_do_not_reach_the_model(place: Workspace) -> None:
    (place.root / "esc.txt").write_bytes(b"\x1b[31mneedle\x07\n")
    assert "1:\\x1b[31mneedle\\x07" in (await grep(place, "needle")).text


async def test_unsaved_files_are_named(place: Workspace) -> None:
    place.buffers = {"src/app.py": Buffer("new text", 1)}
    assert "searched as saved on disk: src/app.py" in (await grep(place, "stats", path="src")).text


@pytest.mark.case("agent-24")
async def test_links_are_not_followed(place: Workspace, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("needle\n")
    (place.root / "folder").symlink_to(outside)
    (place.root / "file.txt").symlink_to(outside / "secret.txt")
    assert (await grep(place, "needle")).text == "(no match)"
    for path in ("folder", "file.txt", "folder/secret.txt", "..", str(outside)):
        with pytest.raises(OutsideWorkspace):
            await grep(place, "needle", path=path)


@pytest.mark.case("agent-24")
async def test_what_a_swapped_folder_shows_is_not_given_out(
    place: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ripgrep walks by names: a folder swapped for a link after its check leads it outside. What it found
    there is read again through a confined descriptor, and is not there."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "app.py").write_text("needle = 'outside'\n")
    (place.root / "src" / "app.py").write_text("needle = 'inside'\n")
    collect = grep_module._collect

    async def swapped(*arguments):
        (place.root / "src").rename(place.root / "away")
        (place.root / "src").mkdir()
        (place.root / "src" / "app.py").write_text("needle = 'outside'\n")
        await collect(*arguments)
        (place.root / "src" / "app.py").unlink()
        (place.root / "src").rmdir()
        (place.root / "src").symlink_to(outside)

    monkeypatch.setattr(grep_module, "_collect", swapped)
    result = await grep(place, "needle")
    assert "outside" not in result.text
    assert "1 file changed during the search, left out" in result.text
    assert "away/app.py\n1:needle = 'inside'" in result.text


async def test_a_search_that_takes_too_long_is_stopped(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grep_module, "DEADLINE", 0.0)
    with pytest.raises(ToolTimeout, match="Narrow it"):
        await grep(place, "stats")


def searches() -> list[psutil.Process]:
    return [process for process in psutil.Process().children() if process.name() == "rg"]


async def test_ripgrep_runs_outside_the_workspace_with_an_empty_environment(place: Workspace) -> None:
    for number in range(40):
        (place.root / f"many{number}.txt").write_text(("needle " + "x" * 200 + "\n") * 2000)
    outcome = Outcome()
    async with aclosing(search(["needle", str(place.root)], (), outcome)) as found:
        async for _ in found:
            (process,) = searches()
            assert process.cwd() == "/"
            assert process.environ() == {"LC_ALL": "C.UTF-8"}
            break
    assert searches() == []
    assert outcome.status is None
    del found
    gc.collect()  # what was left open would be said now, and fail the test


MEMORY = """
import asyncio, resource, sys, json
from pathlib import Path
from tests.support.calling import call, workspace
from tools.grep import Grep

async def main():
    place = workspace(Path(sys.argv[1]))
    await call(Grep(), place, pattern="warm")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = await call(Grep(), place, pattern="stats", context=2, limit=1000)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(json.dumps({"grown": after - before, "child": child, "size": len(result.text), **result.data}))

asyncio.run(main())
"""


@pytest.mark.case("agent-15")
@pytest.mark.budget
def test_large_logs_take_flat_memory(tmp_path: Path) -> None:
    """Eight logs of 20 MB in which every line matches, with context: the size of the logs shows nowhere."""
    root = tmp_path / "work"
    root.mkdir()
    block = b"".join(b"2024-01-01 stats request=%d took 12 ms\n" % number for number in range(25_000))
    for number in range(8):
        with (root / f"log{number}.txt").open("wb") as file:
            for _ in range(20_000_000 // len(block) + 1):
                file.write(block)
    project = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(root)],
        cwd=project,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(project), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        check=True,
    )
    facts = json.loads(done.stdout)
    assert facts["incomplete"] is True and facts["matches"] > 100
    assert facts["size"] < 96 * 1024
    assert facts["grown"] < 16 * 1024, f"{facts['grown']} KiB more"
    assert facts["child"] < 64 * 1024, f"ripgrep took {facts['child']} KiB"


@pytest.mark.budget
async def test_the_tool_costs_at_most_20_ms_more_than_ripgrep(tmp_path: Path) -> None:
    root = tmp_path / "work"
    for number in range(1500):
        folder = root / f"d{number % 40}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{number}.py").write_text(f"def f{number}():\n    return {number}\n" * 40)
    place = workspace(root)
    bare = ours = float("inf")
    assert (await grep(place, r"f777\b")).data["matches"] == 40
    for _ in range(25):
        began = time.perf_counter()
        subprocess.run(
            [str(binary()), "--no-config", "-n", "f777\\b", str(root)], capture_output=True, check=True
        )
        bare = min(bare, time.perf_counter() - began)
        began = time.perf_counter()
        await grep(place, r"f777\b")
        ours = min(ours, time.perf_counter() - began)
    assert ours - bare < 0.020, f"{(ours - bare) * 1000:.1f} ms more than {bare * 1000:.1f} ms"
