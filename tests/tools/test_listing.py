"""The list tool: kinds, sizes, what is ignored, what is left out."""

import os
import time
from pathlib import Path

import pytest

from tests.support.calling import call, workspace
from tools.errors import InvalidArguments, OutsideWorkspace
from tools.files import NotFound
from tools.listing import LINES, List
from tools.registry import OUTPUT_LIMITS
from tools.workspace import Workspace


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    (tmp_path / "work").mkdir()
    return workspace(tmp_path / "work")


async def listed(place: Workspace, **arguments: str) -> str:
    return (await call(List(), place, **arguments)).text


def make(place: Workspace, *paths: str) -> None:
    for path in paths:
        file = place.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if path.endswith("/"):
            file.mkdir()
        else:
            file.write_bytes(b"x" * 1500)


async def test_a_tree_with_folders_first_sizes_and_kinds(place: Workspace) -> None:
    make(place, "src/deep/a.py", "src/b.py", "README.md", ".hidden", "empty/")
    (place.root / "link").symlink_to("src/b.py")
    (place.root / "out").symlink_to("/etc")
    os.mkfifo(place.root / "pipe")
    assert await listed(place) == (
        "empty/  (empty)\n"
        "src/\n"
        "  deep/\n"
        "    a.py  1.5 kB\n"
        "  b.py  1.5 kB\n"
        ".hidden  1.5 kB\n"
        "README.md  1.5 kB\n"
        "link  -> src/b.py\n"
        "out  -> /etc\n"
        "pipe  (FIFO)"
    )


async def test_what_git_ignores_is_marked_and_not_opened(place: Workspace) -> None:
    make(
        place,
        ".git/HEAD",
        "build/x",
        "sub/build/x",
        "sub/keep.log",
        "a.log",
        "sub/other.txt",
        "sub/.git/HEAD",
    )
    (place.root / ".gitignore").write_text("build/\n*.log\n")
    (place.root / "sub" / ".gitignore").write_text("!keep.log\n/other.txt\n")
    text = await listed(place)
    assert "build/  (ignored)\nsub/\n  build/  (ignored)\n" in text
    assert "a.log  1.5 kB (ignored)" in text and "  keep.log  1.5 kB\n" in text
    assert "  other.txt  1.5 kB (ignored)" in text and ".git/" not in text
    assert await listed(place, path="build") == "x  1.5 kB"
    (place.root / ".git" / "info").mkdir()
    (place.root / ".git" / "info" / "exclude").write_text("sub\n")
    assert "sub/  (ignored)" in await listed(place)


async def test_hostile_ignore_files_are_harmless(place: Workspace, tmp_path: Path) -> None:
    make(place, "a/x", "b/x", "c/x", "d/x")
    (tmp_path / "rules").write_text("*\n")
    (place.root / "a" / ".gitignore").symlink_to(tmp_path / "rules")
    os.mkfifo(place.root / "b" / ".gitignore")
    (place.root / "c" / ".gitignore").write_bytes(b"\xff\n[\n!\n\\\n***\n[z-a]\nx\n")
    (place.root / "d" / ".gitignore").mkdir()
    text = await listed(place)
    assert f"{text}\n".count("  x  1.5 kB\n") == 3
    assert "x  1.5 kB (ignored)" in text


async def test_a_folder_that_does_not_fit_is_counted(place: Workspace) -> None:
    make(place, *(f"many/f{number}" for number in range(150)), *(f"few/f{number}" for number in range(3)))
    make(place, *(f"many/d{number}/" for number in range(2)))
    assert (await listed(place)).endswith("many/  (150 files, 2 folders)")
    assert (await listed(place, path="many")).startswith("d0/  (empty)\nd1/  (empty)\nf0  1.5 kB\n")


async def test_lines_and_bytes_are_limited_and_that_is_said(place: Workspace) -> None:
    make(place, *(f"f{number:04}" for number in range(500)))
    result = await call(List(), place)
    assert len(result.text.splitlines()) == LINES + 1
    assert result.text.endswith("(incomplete: 300 more entries of .; find files in it with glob)")
    assert result.data["incomplete"] is True
    place.output_limit = OUTPUT_LIMITS["compact"]
    for number in range(500):
        (place.root / f"f{number:04}").rename(place.root / f"f{number:04}{'n' * 200}")
    short = await call(List(), place)
    assert 500 < len(short.text) < 4_000 and "more entries of ." in short.text


async def test_names_are_shown_on_one_line_and_clean(place: Workspace) -> None:
    for name in (b"a\nb", b"\x1b[31mred", b"caf\xe9", "é".encode()):
        os.close(os.open(os.path.join(os.fsencode(place.root), name), os.O_CREAT | os.O_WRONLY))
    assert await listed(place) == "\\x1b[31mred  0 B\na\\x0ab  0 B\ncaf\\xe9  0 B\né  0 B"


@pytest.mark.case("agent-24")
@pytest.mark.parametrize("path", ["..", "/etc", "out", "out/sub", "inner/../../x"])
async def test_nothing_outside_is_listed(place: Workspace, tmp_path: Path, path: str) -> None:
    (tmp_path / "outside" / "sub").mkdir(parents=True)
    (place.root / "out").symlink_to(tmp_path / "outside")
    with pytest.raises(OutsideWorkspace):
        await listed(place, path=path)


async def test_what_is_no_folder_is_said(place: Workspace) -> None:
    make(place, "src/a.py", ".git/HEAD")
    with pytest.raises(InvalidArguments, match="Use read"):
        await listed(place, path="src/a.py")
    with pytest.raises(NotFound, match="src"):
        await listed(place, path="scr")
    with pytest.raises(InvalidArguments, match="git commands"):
        await listed(place, path=".git")
    with pytest.raises(InvalidArguments, match="NUL"):
        await listed(place, path="a\0b")
    (place.root / "loop").symlink_to("loop")
    with pytest.raises(InvalidArguments, match="links"):
        await listed(place, path="loop")
    (place.root / "inner").symlink_to("src")
    assert await listed(place, path="inner") == "a.py  1.5 kB"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everywhere")
async def test_a_folder_that_may_not_be_read_is_marked(place: Workspace) -> None:
    make(place, "shut/a", "open/b")
    (place.root / "shut").chmod(0)
    assert "shut/  (cannot be read)" in await listed(place)
    (place.root / "shut").chmod(0o755)


async def test_a_very_deep_tree_ends(place: Workspace) -> None:
    descriptor = os.open(place.root, os.O_RDONLY)
    for _ in range(400):
        os.mkdir("d", dir_fd=descriptor)
        inner = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)
    text = await listed(place)
    assert 10 < len(text.splitlines()) <= LINES and len(text) < 48 * 1024


@pytest.mark.budget
async def test_three_hundred_thousand_entries_are_answered_quickly_and_not_held(place: Workspace) -> None:
    (place.root / "huge").mkdir()
    folder = os.open(place.root / "huge", os.O_RDONLY)
    for number in range(300_000):
        os.mknod(f"entry{number:06}", dir_fd=folder)
    os.close(folder)
    started = time.process_time()
    result = await call(List(), place, path="huge")
    assert time.process_time() - started < 3
    assert result.text.startswith("entry") and "more entries of huge" in result.text
    started = time.process_time()
    top = await call(List(), place)
    assert time.process_time() - started < 1.5
    assert "files)" in top.text and top.text.startswith("huge/  (")


@pytest.mark.budget
async def test_a_repository_of_seven_thousand_files_takes_a_tenth_of_a_second(place: Workspace) -> None:
    for folder in range(700):
        make(place, *(f"pkg{folder % 70}/mod{folder}/f{number}.py" for number in range(10)))
    (place.root / ".gitignore").write_text("*.pyc\n__pycache__/\nbuild/\n/dist\n" * 10)
    taken = []
    for _ in range(5):
        started = time.process_time()
        await call(List(), place)
        taken.append(time.process_time() - started)
    assert min(taken) < 0.1


async def test_without_time_folders_stay_closed_and_marks_are_made(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(place, "src/a.py", "a.log", "build/x")
    (place.root / ".gitignore").write_text("*.log\nbuild/\n")
    monkeypatch.setattr("tools.listing.DEEP", -1.0)
    assert await listed(place) == (
        "build/  (ignored)\nsrc/\n.gitignore  13 B\na.log  1.5 kB (ignored)\n"
        "(folders opened only for -1 s; list one of them to see more)"
    )
