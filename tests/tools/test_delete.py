"""The delete tool: files, links and named folders; everything it removes is in its result."""

import os
from pathlib import Path

import pytest

from tests.support.calling import call, saw, tree, workspace
from tools import delete as delete_module
from tools.delete import Delete
from tools.errors import EnvironmentFault, InvalidArguments, OutsideWorkspace
from tools.files import Changed, NotFound
from tools.relocation import MAX_ENTRIES, Held
from tools.stale import Stale
from tools.workspace import Buffer, Workspace


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    (tmp_path / "work").mkdir()
    return workspace(tmp_path / "work")


async def delete(place: Workspace, path: str):
    return await call(Delete(), place, path=path)


async def test_a_file_is_deleted_and_its_content_kept_in_the_result(place: Workspace) -> None:
    (place.root / "a.bin").write_bytes(b"a\0b")
    (place.root / "b").touch()
    saw(place, "a.bin")
    result = await delete(place, "a.bin")
    assert tree(place.root) == {"b": b""}
    (change,) = result.changes
    assert (change.path, change.before, change.after) == ("a.bin", b"a\0b", None)
    assert place.seen == {}
    with pytest.raises(NotFound):
        await delete(place, "a.bin")


async def test_a_folder_is_deleted_only_where_it_is_named_as_one(place: Workspace) -> None:
    (place.root / "d" / "e").mkdir(parents=True)
    (place.root / "d" / "e" / "f").write_bytes(b"f")
    (place.root / "d" / "link").symlink_to("/etc")
    os.mkfifo(place.root / "d" / "pipe")
    (place.root / "file").touch()
    with pytest.raises(InvalidArguments, match="with a slash: d/"):
        await delete(place, "d")
    with pytest.raises(InvalidArguments, match="without the slash"):
        await delete(place, "file/")
    result = await delete(place, "d/")
    assert sorted(os.listdir(place.root)) == ["file"]
    assert [change.path for change in result.changes] == ["d/e/f"]
    assert result.text == "Deleted d/ (1 file, 1 link, 1 special file)."
    assert result.data == {"deleted": "d", "files": 1, "links": {"d/link": "/etc"}, "folders": ["d", "d/e"]}
    assert os.path.exists("/etc")


@pytest.mark.case("agent-24")
async def test_a_link_is_deleted_and_never_what_it_leads_to(place: Workspace, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").touch()
    (place.root / "real").write_bytes(b"x")
    for name, target in (("a", "real"), ("b", tmp_path / "outside"), ("c", "nowhere")):
        (place.root / name).symlink_to(target)
        result = await delete(place, name)
        assert "what it led to" in result.text and result.changes == ()
    assert tree(place.root) == {"real": b"x"}
    assert (tmp_path / "outside" / "file").exists()


@pytest.mark.case("agent-24")
@pytest.mark.parametrize(
    "path", [".", "./", "", "..", "../outside", "/etc/hosts", "dir/file", ".git", ".git/", "s/"]
)
async def test_the_root_git_and_the_outside_are_refused(place: Workspace, tmp_path: Path, path: str) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").touch()
    (place.root / "dir").symlink_to(tmp_path / "outside")
    for folder in (".git", "s/sub/.git"):
        (place.root / folder).mkdir(parents=True)
        (place.root / folder / "config").write_bytes(b"x")
    with pytest.raises((OutsideWorkspace, InvalidArguments)):
        await delete(place, path)
    assert (tmp_path / "outside" / "file").exists()
    assert len(tree(place.root)) == 2


async def test_a_large_folder_is_left_to_the_shell(place: Workspace) -> None:
    (place.root / "d").mkdir()
    for number in range(MAX_ENTRIES + 1):
        (place.root / "d" / str(number)).touch()
    with pytest.raises(InvalidArguments, match="in parts, or with the shell"):
        await delete(place, "d/")
    assert len(os.listdir(place.root / "d")) == MAX_ENTRIES + 1
    with (place.root / "big").open("wb") as file:
        file.truncate(4 << 30)
    with pytest.raises(InvalidArguments, match="4294967296 bytes"):
        await delete(place, "big")


async def test_a_deep_folder_is_refused_and_closes_what_it_opened(place: Workspace) -> None:
    folder = place.root / "d"
    folder.mkdir()
    descriptor = os.open(folder, os.O_RDONLY)
    for _ in range(600):
        os.mkdir("n", dir_fd=descriptor)
        inner = os.open("n", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(InvalidArguments, match="levels"):
        await delete(place, "d/")
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.case("edit-6")
async def test_what_changed_since_it_was_seen_stays(place: Workspace) -> None:
    (place.root / "d").mkdir()
    (place.root / "d" / "a").write_bytes(b"one")
    saw(place, "d/a")
    (place.root / "d" / "a").write_bytes(b"two")
    for path in ("d/", "d/a"):
        with pytest.raises(Stale, match="d/a has changed"):
            await delete(place, path)
    place.seen.clear()
    place.buffers = {"d/a": Buffer("unsaved")}
    with pytest.raises(EnvironmentFault, match="unsaved"):
        await delete(place, "d/")
    assert tree(place.root) == {"d/a": b"two"}


async def test_a_change_amid_the_deletion_keeps_everything(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.root / "d").mkdir()
    (place.root / "d" / "a").write_bytes(b"one")
    look = delete_module.held
    calls = 0

    def held(*arguments: object) -> list[Held]:
        nonlocal calls
        calls += 1
        if calls == 3:  # proposed, looked at, and now set aside
            (aside,) = place.root.iterdir()
            (aside / "new").write_bytes(b"the user's")
        return look(*arguments)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(delete_module, "held", held)
    with pytest.raises(Changed, match="was left"):
        await delete(place, "d/")
    assert tree(place.root) == {"d/a": b"one", "d/new": b"the user's"}


async def test_a_removal_that_fails_half_way_is_put_back(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.root / "d" / "e").mkdir(parents=True)
    (place.root / "d" / "a").write_bytes(b"one")
    (place.root / "d" / "a").chmod(0o755)
    (place.root / "d" / "e" / "b").write_bytes(b"two")
    (place.root / "d" / "link").symlink_to("a")
    remove = delete_module.shutil.rmtree

    def rmtree(name: str, *, dir_fd: int) -> None:
        os.unlink(f"{name}/a", dir_fd=dir_fd)
        os.unlink(f"{name}/link", dir_fd=dir_fd)
        remove(f"{name}/e", dir_fd=dir_fd)
        raise PermissionError(1, "not permitted")

    monkeypatch.setattr(delete_module.shutil, "rmtree", rmtree)
    with pytest.raises(EnvironmentFault):
        await delete(place, "d/")
    monkeypatch.undo()
    assert tree(place.root) == {"d/a": b"one", "d/e/b": b"two"}
    assert os.readlink(place.root / "d" / "link") == "a"
    assert (place.root / "d" / "a").stat().st_mode & 0o777 == 0o755


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_a_folder_that_may_not_be_written_is_refused_whole(place: Workspace) -> None:
    (place.root / "d" / "e").mkdir(parents=True)
    (place.root / "d" / "a").touch()
    (place.root / "d" / "e" / "b").touch()
    (place.root / "d" / "e").chmod(0o555)
    with pytest.raises(EnvironmentFault, match="d/e is a folder"):
        await delete(place, "d/")
    assert set(tree(place.root)) == {"d/a", "d/e/b"}
    (place.root / "d" / "e").chmod(0o755)
