"""The write tool: what the model saw, what stays of the old file, what is refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.calling import call, saw, tree, workspace
from tools.applying import NoChange, Refused, Unfit
from tools.encodings import Unencodable
from tools.errors import EnvironmentFault, InvalidArguments, OutsideWorkspace, ToolError
from tools.read import Read
from tools.stale import Stale
from tools.workspace import Buffer, Workspace, content_hash
from tools.write import Unseen, Write


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    (tmp_path / "work").mkdir()
    return workspace(tmp_path / "work")


async def write(place: Workspace, path: str, content: str):
    return await call(Write(), place, path=path, content=content)


async def test_a_new_file_is_made_with_its_folders(place: Workspace) -> None:
    result = await write(place, "a/b/c.py", "one\ntwo\n")
    assert tree(place.root) == {"a/b/c.py": b"one\ntwo\n"}
    (change,) = result.changes
    assert (change.path, change.before, change.after, change.mode) == ("a/b/c.py", None, b"one\ntwo\n", 0o644)
    assert result.text == "Created a/b/c.py (2 lines)."
    assert result.seen == place.seen == {"a/b/c.py": content_hash(b"one\ntwo\n")}


async def test_an_empty_file_can_be_made(place: Workspace) -> None:
    await write(place, "pkg/__init__.py", "")
    assert tree(place.root) == {"pkg/__init__.py": b""}
    await write(place, "pkg/__init__.py", "x = 1\n")
    assert tree(place.root) == {"pkg/__init__.py": b"x = 1\n"}


@pytest.mark.case("edit-6")
async def test_a_file_that_was_not_read_is_not_overwritten(place: Workspace) -> None:
    (place.root / "a.py").write_text("the user's\n")
    with pytest.raises(Unseen, match="Read it first"):
        await write(place, "a.py", "mine\n")
    assert tree(place.root) == {"a.py": b"the user's\n"}
    await call(Read(), place, path="a.py")
    result = await write(place, "a.py", "mine\n")
    assert tree(place.root) == {"a.py": b"mine\n"}
    assert "-the user's\n+mine" in result.text


@pytest.mark.case("edit-6")
async def test_what_changed_since_it_was_read_is_not_overwritten(place: Workspace) -> None:
    (place.root / "a.py").write_text("one\n")
    await call(Read(), place, path="a.py")
    (place.root / "a.py").write_text("one\n# the user's\n")
    for _ in range(2):
        with pytest.raises(Stale, match="Read it again"):
            await write(place, "a.py", "two\n")
    assert tree(place.root) == {"a.py": b"one\n# the user's\n"}


async def test_the_mode_the_encoding_the_mark_and_the_endings_stay(place: Workspace) -> None:
    for name, old, new, expected in (
        ("crlf", b"a\r\nb\r\n", "x\ny\n", b"x\r\ny\r\n"),
        ("sent", b"a\r\nb\r\n", "x\r\ny\n", b"x\r\ny\n"),
        ("mixed", b"a\r\nb\n", "x\ny\n", b"x\ny\n"),
        ("mark", b"\xef\xbb\xbfa\n", "b\n", b"\xef\xbb\xbfb\n"),
        ("latin", "café\n".encode("cp1252"), "thé\n", "thé\n".encode("cp1252")),
        ("wide", b"\xff\xfe" + "a\n".encode("utf-16-le"), "b\n", b"\xff\xfe" + "b\n".encode("utf-16-le")),
        ("no-newline", b"a\n", "b", b"b"),
    ):
        (place.root / name).write_bytes(old)
        (place.root / name).chmod(0o750)
        saw(place, name)
        await write(place, name, new)
        assert (place.root / name).read_bytes() == expected, name
        assert (place.root / name).stat().st_mode & 0o777 == 0o750


async def test_a_character_the_encoding_has_not_is_refused(place: Workspace) -> None:
    (place.root / "a").write_bytes("café\n".encode("cp1252"))
    saw(place, "a")
    with pytest.raises(Unencodable, match="Windows-1252"):
        await write(place, "a", "日本\n")
    assert (place.root / "a").read_bytes() == "café\n".encode("cp1252")


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("def f():\n    # ... rest of the code\n", Refused),
        ("token = '[REDACTED:key-1]'\n", Refused),
        ("a\0b", Refused),
        ("same\n", NoChange),
    ],
)
async def test_what_must_not_be_written_is_refused(
    place: Workspace, content: str, error: type[ToolError]
) -> None:
    (place.root / "a").write_text("same\n")
    saw(place, "a")
    with pytest.raises(error):
        await write(place, "a", content)
    if error is Refused:
        with pytest.raises(error):
            await write(place, "new", content)
    assert tree(place.root) == {"a": b"same\n"}


async def test_binary_files_folders_and_special_files_are_refused(place: Workspace) -> None:
    (place.root / "a.bin").write_bytes(b"a\0b")
    saw(place, "a.bin")
    os.mkfifo(place.root / "pipe")
    (place.root / "folder").mkdir()
    with pytest.raises(Unfit, match="binary"):
        await write(place, "a.bin", "text\n")
    for path in ("pipe", "folder", "a.bin/x"):
        with pytest.raises(ToolError):
            await write(place, path, "text\n")


@pytest.mark.case("agent-24")
@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "/etc/x",
        "link",
        "dir/x",
        ".git/hooks/pre-commit",
        "sub/.git/config",
        ".GIT/config",
        "g/config",
    ],
)
async def test_outside_and_git_are_refused(place: Workspace, tmp_path: Path, path: str) -> None:
    (tmp_path / "outside").mkdir()
    (place.root / ".git" / "hooks").mkdir(parents=True)
    (place.root / "link").symlink_to(tmp_path / "outside" / "file")
    (place.root / "dir").symlink_to(tmp_path / "outside")
    (place.root / "g").symlink_to(".git")
    with pytest.raises((OutsideWorkspace, InvalidArguments)):
        await write(place, path, "x\n")
    assert list((tmp_path / "outside").iterdir()) == []
    assert tree(place.root) == {}


async def test_an_unsaved_buffer_is_written_through_the_editor(place: Workspace) -> None:
    (place.root / "a.py").write_text("saved\n")
    place.buffers = {"a.py": Buffer("unsaved\n", 2)}
    await call(Read(), place, path="a.py")
    with pytest.raises(EnvironmentFault, match="unsaved"):
        await write(place, "a.py", "mine\n")
    sent: list[tuple[str, str]] = []

    async def through(path: str, text: str) -> None:
        sent.append((path, text))

    place.write_through = through
    result = await write(place, "a.py", "mine\n")
    assert sent == [("a.py", "mine\n")]
    assert result.data["through"] == "editor" and result.changes[0].before == b"unsaved\n"
    assert (place.root / "a.py").read_text() == "saved\n"


async def test_a_full_disk_leaves_the_old_file(place: Workspace) -> None:
    """In a process of its own, whose files may not grow beyond a limit."""
    (place.root / "a").write_text("old\n")
    script = (
        "import asyncio, resource, signal, sys\n"
        "from pathlib import Path\n"
        "from tests.support.calling import call, saw, workspace\n"
        "from tools.errors import EnvironmentFault\n"
        "from tools.write import Write\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "place = workspace(Path(sys.argv[1]))\n"
        "saw(place, 'a')\n"
        "for path in ('a', 'new'):\n"
        "    try:\n"
        "        asyncio.run(call(Write(), place, path=path, content='x' * 10_000))\n"
        "    except EnvironmentFault as error:\n"
        "        assert 'unchanged' in error.message, error.message\n"
        "    else:\n"
        "        raise AssertionError('written')\n"
    )
    repository = Path(__file__).parents[2]
    subprocess.run(
        [sys.executable, "-c", script, str(place.root)],
        check=True,
        cwd=repository,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(repository), os.environ.get("PYTHONPATH", "")]),
        },
    )
    assert tree(place.root) == {"a": b"old\n"}
