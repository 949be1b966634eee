"""The edit tool against a workspace: what the model saw, editors' buffers, links, modes, full disks."""

import asyncio
import os
import re
import threading
import time
from pathlib import Path

import pytest

from tests.support.calling import call, saw, tree, workspace
from tools import edit as edit_module
from tools.edit import Edit, Stale, apply_edits
from tools.errors import EnvironmentFault, InvalidArguments, OutsideWorkspace
from tools.files import NotFound
from tools.read import Read
from tools.workspace import Buffer, Workspace, content_hash

Change = dict[str, str]


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    root = tmp_path / "work"
    root.mkdir()
    return workspace(root)


def write(place: Workspace, path: str, content: bytes, seen: bool = True) -> Path:
    file = place.root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    if seen:
        saw(place, path)
    return file


async def edit(place: Workspace, path: str, *changes: Change):
    return await call(Edit(), place, path=path, edits=list(changes))


@pytest.mark.case("agent-17")
@pytest.mark.case("edit-6")
async def test_a_file_changed_since_it_was_read_is_refused_and_shown(place: Workspace) -> None:
    file = write(place, "a.py", b"def f():\n    one()\n    two()\n")
    file.write_bytes(b"def f():\n    one()\n    # the user's comment\n    two()\n")
    change = {"old": "    one()\n    two()\n", "new": "    three()\n"}
    with pytest.raises(Stale) as caught:
        await edit(place, "a.py", change)
    assert "# the user's comment" in caught.value.message
    assert caught.value.data["seen"] == {"a.py": content_hash(file.read_bytes())}
    # What was shown counts as seen, and the comment in the middle still keeps the old edit from matching.
    with pytest.raises(InvalidArguments, match="was not found"):
        await edit(place, "a.py", change)
    assert b"# the user's comment" in file.read_bytes()
    await edit(place, "a.py", {"old": "    two()\n", "new": "    three()\n"})
    assert file.read_bytes() == b"def f():\n    one()\n    # the user's comment\n    three()\n"


@pytest.mark.case("edit-mode-10")
async def test_a_formatter_after_the_edit_is_noticed_and_its_result_shown(place: Workspace) -> None:
    file = write(place, "a.py", b"x = {'a':1}\ny = 1\n")
    await edit(place, "a.py", {"old": "{'a':1}", "new": "{'a':2}"})
    file.write_bytes(b'x = {"a": 2}\ny = 1\n')
    with pytest.raises(Stale, match=re.escape('x = {"a": 2}')):
        await edit(place, "a.py", {"old": "x = {'a':2}\n", "new": "x = {}\n"})


@pytest.mark.case("edit-6")
async def test_a_file_never_read_takes_only_exact_edits(place: Workspace) -> None:
    file = write(place, "a.py", b"    one\n    two\n", seen=False)
    with pytest.raises(InvalidArguments, match="read it first"):
        await edit(place, "a.py", {"old": "one  \ntwo", "new": "x"})
    await edit(place, "a.py", {"old": "two", "new": "TWO"})
    assert file.read_bytes() == b"    one\n    TWO\n"


@pytest.mark.case("edit-mode-6")
async def test_a_read_after_an_edit_gives_the_new_content(place: Workspace) -> None:
    write(place, "a.py", b"one\n")
    await edit(place, "a.py", {"old": "one", "new": "two"})
    result = await call(Read(), place, path="a.py")
    assert result.text == "1\ttwo"
    assert result.seen == place.seen


@pytest.mark.case("edit-table-mode")
@pytest.mark.parametrize("mode", [0o755, 0o600, 0o664, 0o640])
async def test_permission_bits_are_kept(place: Workspace, mode: int) -> None:
    file = write(place, "run.sh", b"echo two\n")
    file.chmod(mode)
    result = await edit(place, "run.sh", {"old": "two", "new": "TWO"})
    assert file.stat().st_mode & 0o7777 == mode
    assert result.changes[0].mode == mode


@pytest.mark.case("edit-table-symlink")
@pytest.mark.parametrize("absolute", [False, True])
async def test_a_link_stays_a_link_and_its_target_is_edited(place: Workspace, absolute: bool) -> None:
    target = write(place, "lib/real.py", b"two\n")
    link = place.root / "link.py"
    link.symlink_to(target if absolute else "lib/real.py")
    result = await edit(place, "link.py", {"old": "two", "new": "TWO"})
    assert link.is_symlink()
    assert target.read_bytes() == b"TWO\n"
    assert result.changes[0].path == "lib/real.py"
    assert list(result.seen) == ["lib/real.py"]


@pytest.mark.case("agent-24")
async def test_links_out_of_the_workspace_are_refused(place: Workspace, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"two\n")
    (place.root / "file").symlink_to(outside / "secret")
    (place.root / "folder").symlink_to(outside)
    (place.root / "relative").symlink_to("../outside/secret")
    for path in ("file", "folder/secret", "relative", "folder/new", "../outside/secret"):
        for change in ({"old": "two", "new": "TWO"}, {"old": "", "new": "TWO"}):
            with pytest.raises(OutsideWorkspace):
                await edit(place, path, change)
    assert tree(outside) == {"secret": b"two\n"}


@pytest.mark.case("agent-24")
async def test_a_hard_link_to_a_file_outside_is_cut_not_written_through(
    place: Workspace, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"two\n")
    os.link(outside, place.root / "inside")
    saw(place, "inside")
    result = await edit(place, "inside", {"old": "two", "new": "TWO"})
    assert outside.read_bytes() == b"two\n"
    assert (place.root / "inside").read_bytes() == b"TWO\n"
    assert "hard links" in result.text


@pytest.mark.parametrize("kind", ["fifo", "directory", "device"])
async def test_what_is_no_file_is_refused_without_being_opened(place: Workspace, kind: str) -> None:
    path = place.root / "thing"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif os.geteuid() == 0:
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, 3))
    else:
        path = Path("/dev/null")
    with pytest.raises(InvalidArguments, match=r"directory|fifo|device|outside"):
        await edit(place, str(path), {"old": "a", "new": "b"})


@pytest.mark.parametrize("path", ["", "a\0b", "x" * 300, "a/" * 3000 + "b", "..", "a/../../b", "/etc/passwd"])
async def test_paths_that_cannot_be_are_refused(place: Workspace, path: str) -> None:
    with pytest.raises(InvalidArguments):
        await edit(place, path, {"old": "", "new": "b"})
    assert list(place.root.iterdir()) == []


async def test_a_missing_file_names_what_is_like_it(place: Workspace) -> None:
    write(place, "src/settings.py", b"x\n")
    with pytest.raises(NotFound, match=r"Did you mean src/settings\.py"):
        await edit(place, "src/setings.py", {"old": "x", "new": "y"})
    with pytest.raises(NotFound, match=r"Did you mean src/settings\.py"):
        await edit(place, "settings.py", {"old": "x", "new": "y"})


async def test_an_absolute_path_inside_is_the_same_file(place: Workspace, tmp_path: Path) -> None:
    file = write(place, "a.py", b"one\n")
    await edit(place, str(file), {"old": "one", "new": "two"})
    (tmp_path / "alias").symlink_to(place.root)
    result = await edit(place, str(tmp_path / "alias" / "a.py"), {"old": "two", "new": "three"})
    assert result.changes[0].path == "a.py"
    assert file.read_bytes() == b"three\n"


async def test_an_editor_that_shows_what_is_on_disk_does_not_matter(place: Workspace) -> None:
    file = write(place, "a.py", b"\xef\xbb\xbfone\r\ntwo\n")
    place.buffers = {"a.py": Buffer("one\ntwo\n", 3)}
    await edit(place, "a.py", {"old": "two", "new": "TWO"})
    assert file.read_bytes() == b"\xef\xbb\xbfone\r\nTWO\n"


async def test_unsaved_text_is_edited_through_the_editor(place: Workspace) -> None:
    file = write(place, "a.py", b"one\n")
    place.buffers = {"a.py": Buffer("one\nunsaved\n", 3)}
    await call(Read(), place, path="a.py")
    written: list[tuple[str, str]] = []

    async def through(path: str, text: str) -> None:
        written.append((path, text))

    place.write_through = through
    result = await edit(place, "a.py", {"old": "unsaved", "new": "two"})
    assert written == [("a.py", "one\ntwo\n")]
    assert file.read_bytes() == b"one\n"
    assert result.changes[0].before == b"one\nunsaved\n"
    assert result.changes[0].after == b"one\ntwo\n"


async def test_unsaved_text_without_a_way_to_write_it_is_refused(place: Workspace) -> None:
    file = write(place, "a.py", b"one\n")
    place.buffers = {"a.py": Buffer("one\nunsaved\n", 3)}
    with pytest.raises(EnvironmentFault, match="unsaved changes in the editor"):
        await edit(place, "a.py", {"old": "one", "new": "two"})
    assert file.read_bytes() == b"one\n"


async def test_a_file_that_changes_between_check_and_write_is_not_overwritten(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(place, "a.py", b"one\n")
    prepare = edit_module._prepare

    def slowly(*arguments):
        prepared = prepare(*arguments)
        file.write_bytes(b"two\n")
        return prepared

    monkeypatch.setattr(edit_module, "_prepare", slowly)
    arguments = Edit.parse('{"path": "a.py", "edits": [{"old": "one", "new": "1"}]}')
    with pytest.raises(Stale, match="changed while"):
        await Edit().run(arguments, place, lambda text: None)
    assert tree(place.root) == {"a.py": b"two\n"}


async def test_a_large_file_is_refused(place: Workspace) -> None:
    with (place.root / "big.log").open("wb") as file:
        file.truncate(17 * 1024 * 1024)
    with pytest.raises(InvalidArguments, match="over 16 MiB"):
        await edit(place, "big.log", {"old": "a", "new": "b"})


async def test_arguments_as_small_models_send_them(place: Workspace) -> None:
    file = write(place, "a.py", b"one\n")
    await call(Edit(), place, path="a.py", edits={"old": "one", "new": "two"})
    await call(Edit(), place, path="a.py", edits='[{"old": "two", "new": "three"}]')
    assert file.read_bytes() == b"three\n"
    for wrong in ([], "two", [{"old": "a"}], [{"old": "a", "new": "b", "line": 3}], 7):
        with pytest.raises(InvalidArguments, match="invalid arguments"):
            await call(Edit(), place, path="a.py", edits=wrong)


@pytest.mark.parametrize("late", [False, True])
async def test_cancelled_before_the_last_step_nothing_is_written_after_it_the_result_is_known(
    place: Workspace, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    write(place, "a.py", b"one\n")
    reached, go = threading.Event(), threading.Event()
    replace = edit_module.replace

    def slow(root, path, data, *, expected, before_commit):
        def held() -> None:
            if late:
                before_commit()
            reached.set()
            go.wait(10)
            if not late:
                before_commit()

        return replace(root, path, data, expected=expected, before_commit=held)

    monkeypatch.setattr(edit_module, "replace", slow)
    arguments = Edit.parse('{"path": "a.py", "edits": [{"old": "one", "new": "two"}]}')
    results = []

    async def turn() -> None:
        results.append(await Edit().run(arguments, place, lambda text: None))
        await asyncio.sleep(60)

    task = asyncio.create_task(turn())
    await asyncio.to_thread(reached.wait, 10)
    task.cancel()
    await asyncio.sleep(0.05)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert tree(place.root) == {"a.py": b"two\n" if late else b"one\n"}
    assert [result.changes[0].after for result in results] == ([b"two\n"] if late else [])


async def test_the_echoed_diff_is_bounded(place: Workspace) -> None:
    write(place, "a.txt", b"one\n")
    result = await edit(place, "a.txt", {"old": "one\n", "new": "".join(f"line {i}\n" for i in range(5000))})
    assert len(result.text) < 7_000
    assert "more lines of diff" in result.text


def test_apply_edits_takes_mappings_and_refuses_other_shapes() -> None:
    assert apply_edits(b"one\n", [{"old": "one", "new": "two"}]).data == b"two\n"
    for wrong in ([], [{"old": "one"}], [{"old": "one", "new": 2}], [{"old": "one", "new": "x", "more": 1}]):
        with pytest.raises(InvalidArguments):
            apply_edits(b"one\n", wrong)


@pytest.mark.case("edit-7")
def test_failures_carry_facts_for_a_repair() -> None:
    with pytest.raises(InvalidArguments) as caught:
        apply_edits(
            b"def f():\n    one()\n    two()\n", [{"old": "def f():\n    one()\n    three()", "new": "x"}]
        )
    (facts,) = caught.value.data["failures"]
    assert facts["reason"] == "no_match"
    assert facts["nearest"]["differs"] == 3
    assert facts["nearest"]["found"] == "    two()"
    assert "3\t    two()" in caught.value.message


LONG = "x = compute_something(argument_one, argument_two)\n"
ABSURD = {
    "one line of 5 MB": (LONG * 20_000, "y" * 5_000_000),
    "5 MB of lines": (LONG * 20_000, "    return value_of(some, arguments)\n" * 140_000),
    "a line like a long line": ("ab" * 200_000 + "\n" + LONG * 100, "ba" * 150_000),
    "long lines, nearly equal": (("abcd" * 400 + "\n") * 2_000, "abce" * 400),
    "brackets": ("}\n" * 200_000, "}}\n}}\n}}\n"),
    "blanks": (LONG * 20_000, " \n" * 500),
}


@pytest.mark.parametrize("name", ABSURD)
def test_absurd_arguments_fail_in_bounded_time(name: str) -> None:
    text, old = ABSURD[name]
    began = time.process_time()
    with pytest.raises(InvalidArguments) as caught:
        apply_edits(text.encode(), [{"old": old, "new": "z"}] * 3)
    assert time.process_time() - began < 5
    assert len(caught.value.message) < 40_000


def test_a_large_replacement_is_checked_in_bounded_time() -> None:
    began = time.process_time()
    new = "    # the rest of it\n" * 200_000
    assert apply_edits(b"one\ntwo\n", [{"old": "two\n", "new": new}]).data == b"one\n" + new.encode()
    assert time.process_time() - began < 5
