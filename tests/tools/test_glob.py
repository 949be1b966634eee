"""The glob tool: what a pattern matches, what git ignores, what is left out."""

import asyncio
import os
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.calling import call, workspace
from tools import glob as glob_module
from tools.errors import InvalidArguments, OutsideWorkspace
from tools.files import NotFound
from tools.glob import SHOWN, Glob
from tools.globbing import patterns
from tools.registry import OUTPUT_LIMITS
from tools.workspace import Workspace

FILES = (
    "a.py", "b.txt", "Makefile", ".env", "src/a.py", "src/b.ts", "src/c.tsx", "src/deep/er/a.py",
    "src/deep/x.c", "docs/a.md", "docs/[id].md", "docs/s p.md", "tests/test_a.py", "tests/.hidden/a.py",
)  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    (tmp_path / "work").mkdir()
    made = workspace(tmp_path / "work")
    make(made, *FILES)
    return made


def make(place: Workspace, *paths: str) -> None:
    for path in paths:
        file = place.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


async def found(place: Workspace, pattern: str, path: str | None = None) -> list[str]:
    result = await call(Glob(), place, pattern=pattern, **({} if path is None else {"path": path}))
    return result.text.splitlines()


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.py", ["a.py", "src/a.py", "src/deep/er/a.py", "tests/.hidden/a.py", "tests/test_a.py"]),
        ("./*.txt", ["b.txt"]),
        ("src/*.py", ["src/a.py"]),
        ("src/**/*.py", ["src/a.py", "src/deep/er/a.py"]),
        ("**/deep/**", ["src/deep/er/a.py", "src/deep/x.c"]),
        ("src/*.{ts,tsx}", ["src/b.ts", "src/c.tsx"]),
        ("{src,docs}/*.{py,md}", ["docs/[id].md", "docs/a.md", "docs/s p.md", "src/a.py"]),
        ("src/[bc].*", ["src/b.ts", "src/c.tsx"]),
        ("src/[!b].*", ["src/a.py", "src/c.tsx"]),
        ("src/[^b].*", ["src/a.py", "src/c.tsx"]),
        ("src/?.t*", ["src/b.ts", "src/c.tsx"]),
        ("docs/\\[id\\].md", ["docs/[id].md"]),
        ("Makefile", ["Makefile"]),
        (".env", [".env"]),
        ("src/", ["src/a.py", "src/b.ts", "src/c.tsx", "src/deep/er/a.py", "src/deep/x.c"]),
        ("{a.py,src/a.py,src/**/a.py}", ["a.py", "src/a.py", "src/deep/er/a.py", "tests/.hidden/a.py"]),
        ("**/er/*", ["src/deep/er/a.py"]),
    ],
)
async def test_patterns(place: Workspace, pattern: str, expected: list[str]) -> None:
    assert await found(place, pattern) == expected


async def test_a_folder_to_look_in(place: Workspace) -> None:
    assert await found(place, "*.py", "src") == ["src/a.py", "src/deep/er/a.py"]
    assert await found(place, "deep/*.c", "src/") == ["src/deep/x.c"]
    assert await found(place, f"{place.root}/src/*.py") == ["src/a.py"]
    (place.root / "link").symlink_to("src")
    assert await found(place, "link/*.py") == ["src/a.py"]


async def test_what_git_ignores_is_left_out_unless_it_is_named(place: Workspace) -> None:
    make(
        place,
        ".git/HEAD",
        "build/out.js",
        "build/x/y.js",
        "a.log",
        "sub/b.log",
        "sub/keep.log",
        "b2/z.js",
    )
    (place.root / ".gitignore").write_text("build/\n*.log\n.env\n")
    (place.root / "sub" / ".gitignore").write_text("!keep.log\n")
    assert await found(place, "**/*.js") == ["b2/z.js"]
    assert await found(place, "**/*.log") == ["sub/keep.log"]
    assert await found(place, "build/**/*.js") == ["build/out.js", "build/x/y.js"]
    assert await found(place, "*.js", "build") == ["build/out.js", "build/x/y.js"]
    assert await found(place, "x/*.js", "build") == ["build/x/y.js"]
    assert await found(place, "sub/b.log") == ["sub/b.log"]
    assert await found(place, ".env") == [".env"]
    assert await found(place, "*.env") == [
        "(no file matches; but 1 that git ignores (.env): name their folder, or the file)"
    ]
    (note,) = await found(place, "src/*.log")
    assert note == "(no file matches)"
    (note,) = await found(place, "sub/b.*")
    assert note == "(no file matches; but 1 that git ignores (sub/b.log): name their folder, or the file)"
    assert await found(place, "HEAD") == ["(no file matches)"]


async def test_rules_above_a_folder_hold_in_it(place: Workspace) -> None:
    make(place, "src/x.pyc", "src/gen/y.py", "src/deep/gen/z.py")
    (place.root / ".gitignore").write_text("*.pyc\n/src/gen/\n")
    assert await found(place, "src/**") == [
        "src/a.py", "src/b.ts", "src/c.tsx", "src/deep/er/a.py", "src/deep/gen/z.py", "src/deep/x.c",
    ]  # fmt: skip
    assert await found(place, "**/*.pyc", "src") == [
        "(no file matches; but 1 that git ignores (src/x.pyc): name their folder, or the file)"
    ]


@pytest.mark.case("agent-24")
async def test_nothing_outside_is_found(place: Workspace, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.key").touch()
    (place.root / "dir").symlink_to(tmp_path / "outside")
    (place.root / "file.key").symlink_to(tmp_path / "outside" / "secret.key")
    assert await found(place, "**/*.key") == ["(no file matches)"]
    assert await found(place, "dir/*") == ["(no file matches)"]
    assert await found(place, "dir/secret.key") == ["(no file matches)"]
    for pattern in ("../*", "src/../../*", "/etc/*"):
        with pytest.raises(InvalidArguments):
            await found(place, pattern)
    for path in ("..", "/etc", "dir"):
        with pytest.raises(OutsideWorkspace):
            await found(place, "*", path)


async def test_a_folder_swapped_for_a_link_amid_the_walk_shows_nothing(
    place: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a.py").touch()
    walk = glob_module.files_below

    def swapped(*arguments):
        yield from walk(*arguments)
        (place.root / "src").rename(place.root / "elsewhere")
        (place.root / "src").symlink_to(tmp_path / "outside")

    monkeypatch.setattr(glob_module, "files_below", swapped)
    assert await found(place, "**/a.py") == [
        "a.py",
        "tests/.hidden/a.py",
        "(2 changed meanwhile, left out)",
    ]


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("", "pattern"),
        ("a\0b", "NUL"),
        ("{1..100000}", "alternatives"),
        ("{a,b}" * 40, "alternatives"),
        (".git/**", "Git's own"),
        ("x" * 3000, "characters"),
        ("///", "empty|absolute"),
    ],
)
async def test_patterns_that_cannot_be_are_refused(place: Workspace, pattern: str, says: str) -> None:
    with pytest.raises(InvalidArguments, match=says):
        await found(place, pattern)


async def test_a_path_that_is_no_folder_is_refused(place: Workspace) -> None:
    with pytest.raises(NotFound):
        await found(place, "*", "scr")
    with pytest.raises(InvalidArguments, match="is a file"):
        await found(place, "*", "a.py")


async def test_the_answer_is_bounded_and_says_so(place: Workspace) -> None:
    (place.root / "many").mkdir()
    for number in range(SHOWN + 200):
        (place.root / "many" / f"f{number:05}.x").touch()
    result = await call(Glob(), place, pattern="**/*.x")
    lines = result.text.splitlines()
    assert lines[:-1] == [f"many/f{number:05}.x" for number in range(SHOWN)]
    assert lines[-1] == "(incomplete: first 500 of 700 files by name; narrow it with `path`)"
    assert result.data == {"files": SHOWN + 200, "shown": SHOWN, "incomplete": True}
    place.output_limit = OUTPUT_LIMITS["compact"]
    short = await call(Glob(), place, pattern="**/*.x")
    assert 1000 < len(short.text) < 4_200 and "of 700 files" in short.text


async def test_a_walk_that_takes_too_long_is_stopped(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glob_module, "DEADLINE", -1.0)
    result = await call(Glob(), place, pattern="**/*.py")
    assert "incomplete: stopped after" in result.text and result.data["incomplete"] is True


async def test_a_cancelled_call_ends_its_process(place: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    started, ended = threading.Event(), threading.Event()
    walk = glob_module.files_below

    def watched(*arguments):
        started.set()
        stop = arguments[4]
        stop.wait(10)
        yield from walk(*arguments)
        assert arguments[5].stopped
        ended.set()

    monkeypatch.setattr(glob_module, "files_below", watched)
    task = asyncio.create_task(call(Glob(), place, pattern="**/*.py"))
    await asyncio.to_thread(started.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(ended.wait, 10)


async def test_names_are_shown_clean_and_special_files_not(place: Workspace) -> None:
    for name in (b"n\nl.odd", b"\x1b[31m.odd", b"caf\xe9.odd"):
        os.close(os.open(os.path.join(os.fsencode(place.root), name), os.O_CREAT | os.O_WRONLY))
    os.mkfifo(place.root / "pipe.odd")
    assert await found(place, "*.odd") == ["\\x1b[31m.odd", "caf\\xe9.odd", "n\\x0al.odd"]


NAME = st.text(alphabet="ab*?[]!-^\\.{},", min_size=1, max_size=6)


@settings(max_examples=200, deadline=None, database=None)
@given(
    pattern=st.lists(NAME | st.just("**"), min_size=1, max_size=4),
    path=st.lists(NAME, min_size=1, max_size=5),
)
def test_no_pattern_breaks_the_matcher(pattern: list[str], path: list[str]) -> None:
    try:
        alternatives = patterns("/".join(pattern))
    except InvalidArguments:
        return
    assert all(one.matches(path) in (True, False) for one in alternatives)


def test_no_pattern_takes_long() -> None:
    (one,) = patterns("**/" + "*a" * 12 + "b")
    (two,) = patterns("/".join(["**", "a*"] * 12) + "/z")
    started = time.process_time()
    assert not one.matches(["a" * 250])
    assert not two.matches(["a"] * 400)
    assert time.process_time() - started < 0.5


@pytest.mark.budget
async def test_a_repository_of_seven_thousand_files_takes_a_tenth_of_a_second(place: Workspace) -> None:
    for folder in range(700):
        make(place, *(f"pkg{folder % 70}/mod{folder}/f{number}.py" for number in range(10)))
    taken = []
    for _ in range(7):
        started = time.process_time()
        await call(Glob(), place, pattern="**/f7*.py")
        taken.append(time.process_time() - started)
    assert min(taken) < 0.1
