"""Restoring and undoing: exact, undoable, never at the cost of what it does not know, whole after a crash."""

import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.trees import tree_of
from tools.snapshots import Limits, RestoreRefused, SnapshotStore, UnknownSnapshot, file_sides, manifest
from tools.snapshots.journal import carry_out
from tools.workspace import content_hash

HERE = Path(__file__).resolve().parents[3]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "a.py").write_text("".join(f"line {number}\n" for number in range(20)))
    (folder / "b.txt").write_bytes(b"one\r\ntwo\r\n")
    return folder


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(tmp_path / "snapshots")


async def test_a_restore_gives_exactly_what_was_recorded_and_can_be_undone(
    root: Path, store: SnapshotStore
) -> None:
    (root / "empty").mkdir(mode=0o750)
    (root / "link").symlink_to("src/a.py")
    (root / "run").write_text("#!/bin/sh\n")
    (root / "run").chmod(0o755)
    os.mkfifo(root / "pipe")
    then, first = tree_of(root), await store.take(root)
    shutil.rmtree(root / "src")
    (root / "src").write_text("a file now")
    (root / "link").unlink()
    (root / "link").mkdir()
    (root / "link" / "deep").write_text("x")
    (root / "run").chmod(0o600)
    (root / "empty").rmdir()
    (root / "pipe").unlink()
    (root / "b.txt").unlink()
    (root / "new").symlink_to("nowhere")
    now = tree_of(root)
    restored = await store.restore(root, first.tree)
    assert not restored.kept and tree_of(root) == then
    assert (await store.take(root)).tree == first.tree
    back = await store.restore(root, restored.before.tree)
    assert not back.kept and tree_of(root) == now
    assert (await store.restore(root, restored.before.tree)).changed == ()


async def test_only_some_paths(root: Path, store: SnapshotStore) -> None:
    first = await store.take(root)
    shutil.rmtree(root / "src")
    (root / "b.txt").write_text("changed")
    restored = await store.restore(root, first.tree, only=[b"src/a.py"])
    assert set(restored.changed) == {b"src", b"src/a.py"}
    assert (root / "b.txt").read_text() == "changed" and (root / "src" / "a.py").exists()


async def test_an_unchanged_file_is_not_written(root: Path, store: SnapshotStore) -> None:
    first = await store.take(root)
    inode = (root / "b.txt").stat().st_ino
    (root / "b.txt").chmod(0o600)
    (root / "src" / "a.py").write_text("x")
    await store.restore(root, first.tree)
    assert (root / "b.txt").stat().st_ino == inode


async def test_empty_partial_and_unknown_snapshots_are_refused(
    root: Path, store: SnapshotStore, tmp_path: Path
) -> None:
    (tmp_path / "nothing").mkdir()
    empty = await store.take(tmp_path / "nothing")
    partial = await store.take(root, Limits(new_bytes=0))
    before = tree_of(root)
    for tree in (empty.tree, partial.tree):
        with pytest.raises(RestoreRefused):
            await store.restore(root, tree)
    with pytest.raises(UnknownSnapshot):
        await store.restore(root, "0" * 40)
    assert tree_of(root) == before


async def test_what_no_snapshot_covers_stays(root: Path, store: SnapshotStore) -> None:
    first = await store.take(root)
    (root / "later").mkdir()
    (root / "later" / "x").write_text("x")
    with (root / "later" / "huge").open("wb") as file:
        file.truncate(100 << 20)
    restored = await store.restore(root, first.tree)
    assert (root / "later" / "huge").stat().st_size == 100 << 20
    assert not (root / "later" / "x").exists()
    assert [path for path, _ in restored.kept] == [b"later"]


async def test_what_is_changed_meanwhile_stays(root: Path, store: SnapshotStore) -> None:
    before = await store.take(root)
    (root / "b.txt").write_text("agent")
    (root / "src" / "a.py").write_text("agent")
    plan = await store.undo_changes(root, before.tree, (await store.take(root)).tree)
    (root / "b.txt").write_text("user, after the preview")
    done = await store.apply(root, plan)
    assert done.changed == (b"src/a.py",) and [path for path, _ in done.kept] == [b"b.txt"]
    assert (root / "b.txt").read_text() == "user, after the preview"


async def test_folders_that_forbid_writing(root: Path, store: SnapshotStore) -> None:
    (root / "src").chmod(0o555)
    first = await store.take(root)
    (root / "src").chmod(0o755)
    (root / "src" / "a.py").write_text("x")
    (root / "src" / "new").write_text("x")
    (root / "src").chmod(0o555)
    restored = await store.restore(root, first.tree)
    assert not restored.kept and (await store.take(root)).tree == first.tree
    assert stat.S_IMODE((root / "src").stat().st_mode) == 0o555
    (root / "src").chmod(0o755)


async def test_a_folder_that_became_a_link_is_not_followed(
    root: Path, store: SnapshotStore, tmp_path: Path
) -> None:
    first = await store.take(root)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.py").write_text("outside")
    shutil.rmtree(root / "src")
    (root / "src").symlink_to(outside)
    await store.restore(root, first.tree)
    assert (outside / "a.py").read_text() == "outside"
    assert not (root / "src").is_symlink() and (await store.take(root)).tree == first.tree


@pytest.mark.case("agent-20")
async def test_undo_takes_back_the_agents_hunks_alone(root: Path, store: SnapshotStore) -> None:
    a, b, c = root / "src" / "a.py", root / "b.txt", root / "c.txt"
    original = a.read_text()
    before = await store.take(root)
    a.write_text(original.replace("line 3\n", "line three\nand more\n"))
    after = await store.take(root)
    agent = a.read_text()
    a.write_text(agent.replace("line 17", "line seventeen"))
    b.write_bytes(b"one\r\nTWO\r\n")
    c.write_text("the user's\n")
    plan = await store.undo_changes(root, before.tree, after.tree)
    assert a.read_text() == agent.replace("line 17", "line seventeen"), "a preview changes nothing"
    (shown,) = plan.files
    assert (
        "-line three" in shown.diff
        and "+line 3" in shown.diff
        and "seventeen" not in shown.diff.split("@@")[2]
    )
    done = await store.apply(root, plan)
    assert done.changed == (b"src/a.py",)
    assert a.read_text() == original.replace("line 17", "line seventeen")
    assert b.read_bytes() == b"one\r\nTWO\r\n" and c.read_text() == "the user's\n"
    assert not (await store.undo_changes(root, before.tree, after.tree)).files
    assert not (await store.undo_changes(root, after.tree, after.tree)).files


@pytest.mark.case("agent-20")
async def test_conflicts_are_shown_and_nothing_is_decided_silently(root: Path, store: SnapshotStore) -> None:
    a = root / "src" / "a.py"
    before = await store.take(root)
    a.write_text(a.read_text().replace("line 3\n", "agent 3\n").replace("line 9\n", "agent 9\n"))
    after = await store.take(root)
    a.write_text(a.read_text().replace("agent 3\n", "mine 3\n"))
    plan = await store.undo_changes(root, before.tree, after.tree)
    ((path, conflict),) = plan.conflicts
    assert path == b"src/a.py" and conflict.line == 4
    assert (conflict.current, conflict.proposed, conflict.base) == ("mine 3\n", "line 3\n", "agent 3\n")
    await store.apply(root, plan)
    assert "mine 3\n" in a.read_text() and "line 9\n" in a.read_text()


async def test_changes_in_a_row_are_taken_back_from_the_last(root: Path, store: SnapshotStore) -> None:
    b = root / "b.txt"
    versions = [b"1\n2\n3\n", b"1\nA\n3\n", b"1\nB\n3\nC\n"]
    names = await store.put_all(versions)
    sides = [(name, len(data)) for name, data in zip(names, versions, strict=True)]
    changes = [file_sides(b"b.txt", sides[n], sides[n + 1], None) for n in range(2)]
    b.write_bytes(b"0\n" + versions[2])
    plan = await store.undo(root, changes)
    await store.apply(root, plan)
    assert b.read_bytes() == b"0\n" + versions[0]


async def test_made_moved_deleted_and_binary_files(root: Path, store: SnapshotStore) -> None:
    (root / "image").write_bytes(b"\x89PNG\r\n\x1a\n\0old")
    (root / "tool").write_text("x")
    (root / "tool").chmod(0o755)
    then, before = tree_of(root), await store.take(root)
    (root / "image").write_bytes(b"\x89PNG\r\n\x1a\n\0new")
    (root / "pkg").mkdir()
    (root / "src" / "a.py").rename(root / "pkg" / "a.py")
    (root / "tool").unlink()
    (root / "src").rmdir()
    after = await store.take(root)
    (root / "mine").write_text("mine")
    await store.apply(root, await store.undo_changes(root, before.tree, after.tree))
    (root / "mine").unlink()
    assert tree_of(root) == then
    (root / "image").write_bytes(b"\x89PNG\r\n\x1a\n\0mine")
    plan = await store.undo_changes(root, after.tree, before.tree, only=[b"image"])
    assert plan.conflicts[0][1].why == "it is not text" and not plan.steps


CRASH = """
import os, signal, sys
from pathlib import Path
from tools.snapshots import SnapshotStore
from tools.snapshots.journal import carry_out
from tools.snapshots import undoing

root, folder, before, after, stage, count = sys.argv[1:]
store = SnapshotStore(Path(folder))
left = int(count)

def progress(reached):
    global left
    if reached == stage:
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

plan = undoing.plan(store.objects, Path(root), undoing.between(store.objects, before, after))
undoing.store_contents(store.objects, plan)
carry_out(store.objects, Path(root), plan.steps, {}, progress)
"""


@pytest.mark.case("agent-20")
@pytest.mark.parametrize(
    ("stage", "count"),
    [
        ("journal", 1),
        ("checked", 1),
        ("removed", 1),
        ("folders", 1),
        ("written", 1),
        ("renamed", 1),
        ("renamed", 3),
    ],
)
async def test_a_crash_amid_an_undo_is_made_good(
    root: Path, store: SnapshotStore, stage: str, count: int
) -> None:
    for number in range(5):
        (root / f"f{number}").write_text(f"{number}\n" * 4)
    then, before = tree_of(root), await store.take(root)
    for number in range(5):
        (root / f"f{number}").write_text(f"{number}\n" * 4 + "agent\n")
    (root / "made").mkdir()
    (root / "made" / "x").write_text("x")
    shutil.rmtree(root / "src")
    after = await store.take(root)
    arguments = [str(root), str(store.folder), before.tree, after.tree, stage, str(count)]
    ran = subprocess.run([sys.executable, "-c", CRASH, *arguments], cwd=HERE)
    assert ran.returncode == -signal.SIGKILL
    (root / "user").write_text("after the crash")
    finished = await SnapshotStore(store.folder).finish(root)
    assert len(finished) == 1 and not finished[0][1].kept
    (root / "user").unlink()
    assert tree_of(root) == then
    assert await store.finish(root) == []


async def test_what_was_deleted_after_a_crash_does_not_come_back(root: Path, store: SnapshotStore) -> None:
    before = await store.take(root)
    (root / "b.txt").write_text("agent")
    (root / "src" / "a.py").write_text("agent")
    after = await store.take(root)
    arguments = [str(root), str(store.folder), before.tree, after.tree, "written", "1"]
    ran = subprocess.run([sys.executable, "-c", CRASH, *arguments], cwd=HERE)
    assert ran.returncode == -signal.SIGKILL
    (root / "b.txt").unlink()
    ((_, done),) = await store.finish(root)
    assert [path for path, _ in done.kept] == [b"b.txt"]
    assert not (root / "b.txt").exists() and "line 3" in (root / "src" / "a.py").read_text()


async def test_a_change_that_is_under_way_is_not_finished_by_another(
    root: Path, store: SnapshotStore
) -> None:
    before = await store.take(root)
    (root / "b.txt").write_text("x")
    plan = await store.undo_changes(root, before.tree, (await store.take(root)).tree)
    seen: list[int] = []

    def progress(stage: str) -> None:
        from tools.snapshots.journal import finish

        seen.append(len(list(finish(store.objects, root))))

    carry_out(store.objects, root, plan.steps, {}, progress)
    assert set(seen) == {0}


async def test_sweeping_keeps_what_is_needed_and_frees_the_rest(root: Path, store: SnapshotStore) -> None:
    first = await store.take(root)
    (root / "b.txt").write_text("second")
    second = await store.take(root)
    (root / "b.txt").write_text("third")
    third = await store.take(root)
    edit = await store.put(b"the other side of an edit")
    await store.hold("S1", [first.tree, edit])
    await store.hold("S2", [second.tree])
    assert (await store.sweep()).removed == 0, "what is young stays"
    swept = await store.sweep(young_s=0)
    assert swept.removed >= 2 and not swept.dropped
    with pytest.raises(UnknownSnapshot):
        await store.entries(third.tree)
    with pytest.raises(UnknownSnapshot):
        await store.read(content_hash(b"third"))
    assert await store.read(edit) == b"the other side of an edit"
    again = await store.take(root)
    assert again.tree == third.tree and await store.read(content_hash(b"third")) == b"third"
    await store.release("S1", heirs=["S2"])
    await store.sweep(young_s=0)
    assert (await store.restore(root, first.tree)).changed == (b"b.txt",)
    await store.release("S2")
    await store.sweep(young_s=0)
    with pytest.raises(UnknownSnapshot):
        await store.entries(first.tree)
    assert not list(store.objects.names())


async def test_sweeping_under_a_budget_drops_the_oldest(root: Path, store: SnapshotStore) -> None:
    trees: list[str] = []
    for number in range(4):
        (root / "b.txt").write_bytes(os.urandom(50_000))
        trees.append((await store.take(root)).tree)
        at = time.time() - 100 + number
        os.utime(store.folder / "trees" / trees[-1], (at, at))
    await store.hold("S", trees)
    swept = await store.sweep(keep=[trees[0]], budget=160_000, young_s=0)
    assert swept.left <= 160_000 and trees[0] not in swept.dropped
    assert swept.dropped == (trees[1],)
    for tree in (trees[0], trees[2], trees[3]):
        await store.restore(root, tree)


@pytest.mark.parametrize("seed", range(4))
async def test_what_a_sweep_leaves_is_whole_and_nothing_else(
    root: Path, store: SnapshotStore, seed: int
) -> None:
    draw = random.Random(seed)
    trees: list[str] = []
    for number in range(12):
        for _ in range(draw.choice((1, 5, 60))):
            file = root / f"d{draw.randrange(9)}" / f"f{draw.randrange(40)}"
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(draw.randbytes(draw.choice((10, 3000, 40_000))))
        trees.append((await store.take(root)).tree)
        at = time.time() - 100 + number
        os.utime(store.folder / "trees" / trees[-1], (at, at))
    held, kept = draw.sample(trees, 9), draw.sample(trees, 2)
    await store.hold("S", held)
    whole = sum(path.stat().st_size for path in store.folder.rglob("*") if path.is_file())
    swept = await store.sweep(keep=kept, budget=whole // 2, young_s=0)
    left = (set(held) - set(swept.dropped)) | set(kept)
    assert swept.dropped and not set(swept.dropped) & set(kept) and not swept.damaged
    needed: set[str] = set()
    for tree in left:
        needed.update(manifest.chunks_of(store.objects, tree))
        for entry in (await store.entries(tree)).values():
            if entry.stored:
                assert content_hash(await store.read(entry.name)) == entry.name
                needed.add(entry.name)
    assert {name for name, _ in store.objects.names()} == needed
    assert {entry.name for entry in store.objects.trees()} == left


FULL = """
import asyncio, os, sys
from pathlib import Path
from tools.snapshots import SnapshotError, SnapshotStore

async def main():
    folder = Path(sys.argv[1])
    root, store = folder / "full", SnapshotStore(folder / "snapshots")
    root.mkdir()
    os.system(f"mount -t tmpfs -o size=1m none {root}")
    content = os.urandom(300_000)
    (root / "a").write_bytes(content)
    first = await store.take(root)
    (root / "a").unlink()
    (root / "ballast").write_bytes(bytes(900_000))
    (root / "made").write_bytes(b"by the agent")
    second = await store.take(root)
    changes = (await store.diff(first.tree, second.tree)).changes
    taken = [change for change in changes if change.path in (b"a", b"made")]
    try:
        await store.apply(root, await store.undo(root, taken))
        raise SystemExit("written to a full disk")
    except SnapshotError as error:
        assert "no room" in error.message, error
    assert os.listdir(root) == ["ballast"], os.listdir(root)
    (root / "ballast").unlink()
    if sys.argv[2] == "again":
        await store.apply(root, await store.undo(root, taken))
    [(what, done)] = await store.finish(root)
    assert "undo" in what and not done.kept, done
    assert await store.finish(root) == []
    assert (root / "a").read_bytes() == content and os.listdir(root) == ["a"]
    print("survived")

asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["again", "finished"])
def test_an_undo_on_a_full_disk_leaves_nothing_beside_and_is_finished_later(tmp_path: Path, how: str) -> None:
    """On a real small file system, mounted in a namespace of its own."""
    confined = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-W", "error", "-c", FULL]
    done = subprocess.run(
        [*confined, tmp_path, how],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{HERE}:{os.environ.get('PYTHONPATH', '')}"},
        timeout=60,
    )
    assert done.stdout == "survived\n", done.stderr
