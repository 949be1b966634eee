"""The apply_patch tool against a workspace: what was seen, buffers, failures amid several files."""

import asyncio
import os
import threading
import time
from pathlib import Path

import pytest

from tests.support.calling import call, saw, tree, workspace
from tools import transaction
from tools.apply_patch import ApplyPatch, ApplyPatchArguments
from tools.applying import NoMatch
from tools.confinement import Place
from tools.errors import EnvironmentFault, InvalidArguments, OutsideWorkspace, ToolError
from tools.files import NotFound
from tools.patch import parse
from tools.read import Read
from tools.result import ToolResult
from tools.stale import Stale
from tools.workspace import Buffer, Workspace, content_hash

THREE = (
    "*** Begin Patch\n*** Update File: a\n@@\n-a\n+A\n*** Delete File: b\n*** Add File: new/c\n+c\n"
    "*** Update File: d\n*** Move to: moved/d\n@@\n-d\n+D\n*** End Patch\n"
)
BEFORE = {"a": b"a\n", "b": b"b\n", "d": b"d\n"}
AFTER = {"a": b"A\n", "new/c": b"c\n", "moved/d": b"D\n"}


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    (tmp_path / "work").mkdir()
    made = workspace(tmp_path / "work")
    for name, data in BEFORE.items():
        (made.root / name).write_bytes(data)
        saw(made, name)
    return made


async def patch(place: Workspace, text: str):
    return await call(ApplyPatch(), place, patch=text)


def update(path: str, old: str, new: str) -> str:
    return f"*** Begin Patch\n*** Update File: {path}\n@@\n-{old}\n+{new}\n*** End Patch\n"


def litter(place: Workspace) -> list[str]:
    return [path.name for path in place.root.rglob(".etude-*")]


async def test_several_files_in_one_call(place: Workspace) -> None:
    (place.root / "d").chmod(0o750)
    result = await patch(place, THREE)
    assert tree(place.root) == AFTER
    assert (place.root / "moved" / "d").stat().st_mode & 0o777 == 0o750
    changes = {change.path: (change.before, change.after) for change in result.changes}
    assert changes == {
        "a": (b"a\n", b"A\n"),
        "b": (b"b\n", None),
        "new/c": (None, b"c\n"),
        "d": (b"d\n", None),
        "moved/d": (None, b"D\n"),
    }
    assert result.data["moved"] == {"d": "moved/d"}
    assert place.seen == result.seen == {name: content_hash(data) for name, data in AFTER.items()}
    assert litter(place) == []
    assert (await call(Read(), place, path="moved/d")).text == "1\tD"


@pytest.mark.case("edit-6")
@pytest.mark.case("agent-17")
async def test_a_file_changed_since_it_was_seen_stops_all(place: Workspace) -> None:
    (place.root / "b").write_bytes(b"the user's\n")
    with pytest.raises(Stale, match="b has changed"):
        await patch(place, THREE)
    assert tree(place.root) == {**BEFORE, "b": b"the user's\n"}


async def test_a_file_never_read_takes_only_exact_places(place: Workspace) -> None:
    place.seen.clear()
    (place.root / "a").write_bytes(b"    one\n    two\n")
    with pytest.raises(NoMatch, match="read it first"):
        await patch(place, update("a", "one", "ONE"))
    await patch(place, update("a", "    one", "    ONE"))
    assert (place.root / "a").read_bytes() == b"    ONE\n    two\n"


async def test_every_file_that_fails_is_named(place: Workspace) -> None:
    text = update("a", "nothing here", "x").replace(
        "*** End Patch", "*** Update File: missing\n@@\n-a\n+b\n*** Delete File: b\n*** End Patch"
    )
    with pytest.raises(InvalidArguments) as caught:
        await patch(place, text)
    assert "2 of 3 files cannot be patched" in caught.value.message
    assert "a: the old text was not found" in caught.value.message
    assert "There is no file 'missing'" in caught.value.message
    assert tree(place.root) == BEFORE


@pytest.mark.parametrize("number", range(1, 6))
async def test_a_failure_at_any_step_undoes_all(
    place: Workspace, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    change, calls = transaction._change, 0

    def failing(*arguments: object) -> None:
        nonlocal calls
        calls += 1
        if calls == number:
            raise OSError(5, "Input/output error")
        change(*arguments)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(transaction, "_change", failing)
    inode = (place.root / "b").stat().st_ino
    with pytest.raises(EnvironmentFault):
        await patch(place, THREE)
    assert tree(place.root) == BEFORE and litter(place) == []
    assert sorted(os.listdir(place.root)) == ["a", "b", "d"]
    assert (place.root / "b").stat().st_ino == inode


async def test_somebody_who_is_faster_stops_all_and_keeps_his_file(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = transaction._change

    def late(where: Place, *arguments: object) -> None:
        if where.path == "new/c":
            (place.root / "new" / "c").write_bytes(b"the user's\n")
        change(where, *arguments)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(transaction, "_change", late)
    with pytest.raises(Stale, match="made by somebody else"):
        await patch(place, THREE)
    assert tree(place.root) == {**BEFORE, "new/c": b"the user's\n"} and litter(place) == []


async def test_an_unsaved_buffer_is_written_through_its_editor(place: Workspace) -> None:
    place.buffers = {"a": Buffer("x\nunsaved\n")}
    await call(Read(), place, path="a")
    text = update("a", "unsaved", "mine").replace("*** End Patch", "*** Delete File: b\n*** End Patch")
    with pytest.raises(EnvironmentFault, match="unsaved"):
        await patch(place, text)
    sent: list[tuple[str, str]] = []

    async def through(path: str, content: str) -> None:
        sent.append((path, content))

    place.write_through = through
    result = await patch(place, text)
    assert sent == [("a", "x\nmine\n")] and result.data["through"] == ["a"]
    assert tree(place.root) == {"a": b"a\n", "d": b"d\n"}
    place.seen.clear()
    with pytest.raises(EnvironmentFault, match="unsaved"):
        await patch(place, "*** Begin Patch\n*** Delete File: a\n*** End Patch\n")


async def test_an_editor_that_fails_undoes_the_disk_and_the_other_editors(place: Workspace) -> None:
    place.buffers = {"a": Buffer("ua\n"), "d": Buffer("ud\n")}
    for name in "ad":
        await call(Read(), place, path=name)
    shown = {"a": "ua\n", "d": "ud\n"}

    async def through(path: str, content: str) -> None:
        if path == "d":
            raise EnvironmentFault("the editor is gone")
        shown[path] = content

    place.write_through = through
    text = (
        "*** Begin Patch\n*** Delete File: b\n*** Update File: a\n@@\n-ua\n+UA\n"
        "*** Update File: d\n@@\n-ud\n+UD\n*** End Patch\n"
    )
    with pytest.raises(EnvironmentFault, match="the editor is gone"):
        await patch(place, text)
    assert shown == {"a": "ua\n", "d": "ud\n"} and tree(place.root) == BEFORE and litter(place) == []


async def test_an_editor_that_is_gone_for_good_still_leaves_the_disk_as_it_was(place: Workspace) -> None:
    place.buffers = {name: Buffer(f"u{name}\n") for name in "ade"}
    (place.root / "e").write_bytes(b"e\n")
    for name in "ade":
        await call(Read(), place, path=name)
    shown = {name: f"u{name}\n" for name in "ade"}

    async def through(path: str, content: str) -> None:
        if path == "e" or content == "ud\n":  # it goes amid the third write, and d's goes with it
            raise EnvironmentFault(f"the editor of {path} is gone")
        shown[path] = content

    place.write_through = through
    text = "*** Begin Patch\n*** Delete File: b\n*** Add File: c\n+c\n" + "".join(
        f"*** Update File: {name}\n@@\n-u{name}\n+U\n" for name in "ade"
    )
    with pytest.raises(EnvironmentFault, match="the editor of e is gone"):
        await patch(place, text + "*** End Patch\n")
    assert shown == {"a": "ua\n", "d": "U\n", "e": "ue\n"}
    assert tree(place.root) == {**BEFORE, "e": b"e\n"} and litter(place) == []


@pytest.mark.parametrize("late", [False, True])
async def test_a_cancelled_patch_is_whole_or_nothing(
    place: Workspace, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    reached, go_on = threading.Event(), threading.Event()
    name = "_change" if late else "written"
    original = getattr(transaction, name)

    def waiting(*arguments: object) -> object:
        reached.set()
        go_on.wait(10)
        return original(*arguments)

    monkeypatch.setattr(transaction, name, waiting)
    tool = ApplyPatch()
    arguments = ApplyPatchArguments(patch=THREE)
    results: list[ToolResult] = []

    async def turn() -> None:
        results.append(await tool.run(arguments, place, lambda text: None))
        await asyncio.sleep(60)

    task = asyncio.create_task(turn())
    await asyncio.to_thread(reached.wait, 10)
    task.cancel()
    await asyncio.sleep(0.05)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [len(result.changes) for result in results] == [5] * late
    assert tree(place.root) == (AFTER if late else BEFORE) and litter(place) == []


@pytest.mark.case("agent-24")
@pytest.mark.parametrize(
    "section",
    [
        "*** Add File: dir/x\n+x\n",
        "*** Update File: link\n@@\n-s\n+x\n",
        "*** Delete File: dir/secret\n",
        "*** Update File: a\n*** Move to: ../a\n",
        "*** Update File: a\n*** Move to: dir/a\n",
        "*** Update File: a\n*** Move to: .git/hooks/post-checkout\n",
        "*** Add File: g/hooks/post-checkout\n+x\n",
        "*** Update File: .git/config\n@@\n-c\n+x\n",
        "*** Delete File: .GIT/config\n",
        "*** Add File: /etc/x\n+x\n",
        "*** Add File: a/x\n+x\n",
        "*** Delete File: folder\n",
        "*** Delete File: pipe\n",
        "*** Update File: pipe\n@@\n-c\n+x\n",
    ],
)
async def test_nothing_outside_nothing_of_gits_and_no_special_file(
    place: Workspace, tmp_path: Path, section: str
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(b"s\n")
    (place.root / "dir").symlink_to(tmp_path / "outside")
    (place.root / "link").symlink_to(tmp_path / "outside" / "secret")
    (place.root / "g").symlink_to(".git")
    (place.root / ".git" / "hooks").mkdir(parents=True)
    (place.root / ".git" / "config").write_bytes(b"c\n")
    (place.root / ".GIT").mkdir()
    (place.root / "folder").mkdir()
    os.mkfifo(place.root / "pipe")
    before = tree(place.root)
    body = f"*** Begin Patch\n*** Update File: b\n@@\n-b\n+B\n{section}*** End Patch\n"
    with pytest.raises((OutsideWorkspace, InvalidArguments, NotFound)):
        await patch(place, body)
    assert tree(place.root) == before
    assert tree(tmp_path / "outside") == {"secret": b"s\n"}


async def test_a_link_stays_and_its_target_is_patched(place: Workspace) -> None:
    (place.root / "link").symlink_to("a")
    result = await patch(place, update("link", "a", "A"))
    assert (place.root / "link").is_symlink() and (place.root / "a").read_bytes() == b"A\n"
    assert result.changes[0].path == "a"


async def test_nul_is_refused(place: Workspace) -> None:
    with pytest.raises(InvalidArguments, match="NUL"):
        await patch(place, update("a", "a", "A\0"))


async def test_a_read_only_file_stops_all(place: Workspace) -> None:
    (place.root / "d").chmod(0o444)
    with pytest.raises(EnvironmentFault):
        await patch(
            place, update("d", "d", "D").replace("*** End Patch", "*** Delete File: b\n*** End Patch")
        )
    assert tree(place.root) == BEFORE and litter(place) == []


async def test_many_places_are_bounded_in_text_and_time(place: Workspace) -> None:
    lines = [f"line {number} of this file" for number in range(20_000)]
    (place.root / "big").write_text("\n".join(lines) + "\n")
    saw(place, "big")
    body = "".join(
        f"@@\n {lines[at]}\n-{lines[at + 1]}\n+{lines[at + 1]} changed\n" for at in range(0, 20_000, 120)
    )
    started = time.process_time()
    result = await patch(place, f"*** Begin Patch\n*** Update File: big\n{body}*** End Patch\n")
    assert time.process_time() - started < 20
    assert result.data["added"] == 167 and len(result.text) < 8_000 and "more lines of diff" in result.text


def test_what_is_wrapped_around_a_patch_costs_nothing() -> None:
    blank = "\n" * 900_000
    started = time.process_time()
    (section,) = parse(f"{blank}```diff\n{blank}{update('a', 'x', 'y')}\n```\n")
    assert section.path == "a" and time.process_time() - started < 10


async def test_the_result_names_the_tolerance_that_was_used(place: Workspace) -> None:
    (place.root / "a").write_bytes(b"def f():\n    return 1\n")
    saw(place, "a")
    result = await patch(place, update("a", "return 1", "return 2"))
    assert "Place 1 matched by indentation, not exactly" in result.text
    assert (place.root / "a").read_bytes() == b"def f():\n    return 2\n"


async def test_a_wrong_argument_is_said(place: Workspace) -> None:
    for text, says in (("nonsense", "changes no file"), ("@@ -1 +1 @@\n-a\n+b\n", "without the names")):
        with pytest.raises(ToolError, match=says):
            await patch(place, text)
