"""The move tool: one step, nothing overwritten, nothing outside; what the model saw follows the file."""

import os
import threading
from pathlib import Path

import pytest

from tests.support.calling import call, saw, tree, workspace
from tools import relocation
from tools.errors import EnvironmentFault, InvalidArguments, OutsideWorkspace, ToolError
from tools.files import NotFound
from tools.move import Move
from tools.stale import Stale
from tools.workspace import Buffer, Workspace, content_hash


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    (tmp_path / "work").mkdir()
    return workspace(tmp_path / "work")


async def move(place: Workspace, source: str, target: str):
    return await call(Move(), place, source=source, target=target)


async def test_a_file_moves_with_its_mode_and_what_was_seen_of_it(place: Workspace) -> None:
    (place.root / "a.sh").write_bytes(b"x\n")
    (place.root / "a.sh").chmod(0o755)
    saw(place, "a.sh")
    result = await move(place, "a.sh", "bin/tools/b.sh")
    assert tree(place.root) == {"bin/tools/b.sh": b"x\n"}
    gone, made = result.changes
    assert (gone.path, gone.before, gone.after) == ("a.sh", b"x\n", None)
    assert (made.path, made.before, made.after, made.mode) == ("bin/tools/b.sh", None, b"x\n", 0o755)
    assert result.data["moved"] == {"a.sh": "bin/tools/b.sh"}
    assert result.seen == place.seen == {"bin/tools/b.sh": content_hash(b"x\n")}


async def test_a_folder_moves_whole(place: Workspace) -> None:
    (place.root / "d" / "e").mkdir(parents=True)
    (place.root / "d" / "e" / "f").write_bytes(b"f")
    (place.root / "d" / "link").symlink_to("e/f")
    (place.root / "dd").write_bytes(b"beside")
    saw(place, "d/e/f")
    saw(place, "dd")
    result = await move(place, "d/", "new")
    assert tree(place.root) == {"new/e/f": b"f", "dd": b"beside"}
    assert os.readlink(place.root / "new" / "link") == "e/f"
    assert [change.path for change in result.changes] == ["d/e/f", "new/e/f"]
    assert set(place.seen) == {"new/e/f", "dd"}


async def test_a_link_itself_moves(place: Workspace) -> None:
    (place.root / "link").symlink_to("/etc")
    result = await move(place, "link", "other")
    assert os.readlink(place.root / "other") == "/etc" and result.changes == ()


@pytest.mark.parametrize("target", ["b", "d", "broken", "a", "sub/../b"])
async def test_nothing_is_overwritten(place: Workspace, target: str) -> None:
    (place.root / "a").write_bytes(b"a")
    (place.root / "b").write_bytes(b"b")
    (place.root / "d").mkdir()
    (place.root / "broken").symlink_to("nowhere")
    with pytest.raises(InvalidArguments, match=r"exists already|that name already"):
        await move(place, "a", target)
    assert tree(place.root) == {"a": b"a", "b": b"b"}


async def test_the_refusal_for_a_folder_as_target_gives_the_whole_path(place: Workspace) -> None:
    (place.root / "a.py").write_bytes(b"a")
    (place.root / "d").mkdir()
    with pytest.raises(InvalidArguments, match=r"Give d/a\.py as target"):
        await move(place, "a.py", "d/")


@pytest.mark.parametrize("kernel", [True, False])
async def test_of_two_moves_to_one_name_one_wins(
    place: Workspace, monkeypatch: pytest.MonkeyPatch, kernel: bool
) -> None:
    if not kernel:
        monkeypatch.setattr(relocation.sys, "platform", "other")
    for round_ in range(20):
        names = [f"a{round_}", f"b{round_}"]
        for name in names:
            (place.root / name).write_bytes(name.encode())
        outcomes: list[str] = []

        def attempt(name: str, number: int = round_, outcomes: list[str] = outcomes) -> None:
            with (
                relocation.entry_at(place.root, name) as source,
                relocation.entry_at(place.root, f"t{number}") as target,
            ):
                try:
                    relocation.rename_new(source, target)
                    outcomes.append(name)
                except FileExistsError:
                    outcomes.append("taken")

        if kernel:
            threads = [threading.Thread(target=attempt, args=(name,)) for name in names]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        else:
            for name in names:
                attempt(name)
        assert sorted(outcomes)[1] == "taken"
        assert (place.root / f"t{round_}").read_bytes().decode() == sorted(outcomes)[0]


@pytest.mark.case("agent-24")
@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("a", "../a"),
        ("a", "/tmp/a"),
        ("a", "dir/a"),
        ("dir/secret", "b"),
        ("../outside/secret", "b"),
        (".", "b"),
        ("a", "."),
        (".git", "b"),
        (".git/config", "b"),
        ("a", ".git/hooks/pre-commit"),
        ("a", "new/.git/config"),
        ("a", "sub/.GIT"),
        ("g/config", "b"),
        ("repo", "b"),
        ("a", "file/b"),
        ("d", "d/e"),
        ("d", "d/e/f/g"),
    ],
)
async def test_outside_git_and_into_itself_are_refused(
    place: Workspace, tmp_path: Path, source: str, target: str
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(b"s")
    (place.root / "dir").symlink_to(tmp_path / "outside")
    (place.root / "d").mkdir()
    (place.root / "a").write_bytes(b"a")
    (place.root / "file").write_bytes(b"f")
    (place.root / "g").symlink_to(".git")
    for folder in (".git", "repo/.git"):
        (place.root / folder).mkdir(parents=True)
        (place.root / folder / "config").write_bytes(b"c")
    before = tree(place.root)
    with pytest.raises((OutsideWorkspace, InvalidArguments)):
        await move(place, source, target)
    assert tree(place.root) == before
    assert sorted(os.listdir(place.root)) == [".git", "a", "d", "dir", "file", "g", "repo"]
    assert [entry.name for entry in (tmp_path / "outside").iterdir()] == ["secret"]


async def test_what_is_not_there_or_changed_is_said(place: Workspace) -> None:
    (place.root / "parser.py").write_bytes(b"one")
    with pytest.raises(NotFound, match=r"parser\.py"):
        await move(place, "parsr.py", "b")
    saw(place, "parser.py")
    (place.root / "parser.py").write_bytes(b"two")
    with pytest.raises(Stale):
        await move(place, "parser.py", "b")
    place.seen.clear()
    place.buffers = {"parser.py": Buffer("unsaved")}
    with pytest.raises(EnvironmentFault, match="unsaved"):
        await move(place, "parser.py", "b")


async def test_a_failed_move_leaves_no_folder_behind(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.root / "a").write_bytes(b"a")

    def fails(*arguments: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr("tools.move.rename_new", fails)
    with pytest.raises(ToolError, match="another file system"):
        await move(place, "a", "new/folder/b")
    assert os.listdir(place.root) == ["a"]
