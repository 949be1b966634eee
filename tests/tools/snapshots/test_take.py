"""Taking snapshots: what is covered, what is left out and said, and that nothing else is touched."""

import asyncio
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools.snapshots import DamagedStore, Limits, Snapshot, SnapshotError, SnapshotStore, UnknownSnapshot
from tools.workspace import content_hash

HERE = Path(__file__).resolve().parents[3]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    (folder / "src" / "empty").mkdir(parents=True)
    (folder / "src" / "a.py").write_text("a = 1\n")
    (folder / "b.txt").write_text("b\n")
    return folder


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(tmp_path / "snapshots")


def left_out(snapshot: Snapshot) -> dict[str, int]:
    return {one.reason: one.count for one in snapshot.left_out}


async def test_every_kind_of_path_is_recorded(root: Path, store: SnapshotStore) -> None:
    nasty = [b"sp ace", b"new\nline", b"\xff\xfe", b"-rf", b":(glob)*", "ünïcode".encode()]
    for name in nasty:
        (root / os.fsdecode(name)).write_bytes(name)
    (root / "secret").write_text("x")
    (root / "secret").chmod(0o600)
    (root / "link").symlink_to("src/a.py")
    (root / "dangling").symlink_to("/nowhere/at/all")
    (root / "loop").symlink_to("loop")
    os.mkfifo(root / "pipe")
    snapshot = await store.take(root)
    entries = await store.entries(snapshot.tree)
    assert set(nasty) <= entries.keys()
    assert entries[b"src/empty"].type == "directory"
    assert entries[b"secret"].mode == 0o600
    assert entries[b"link"].type == "link" and await store.read(entries[b"link"].name) == b"src/a.py"
    assert await store.read(entries[b"dangling"].name) == b"/nowhere/at/all"
    assert entries[b"loop"].type == "link" and entries[b"pipe"].type == "fifo"
    assert await store.read(entries[b"src/a.py"].name) == b"a = 1\n"
    assert snapshot.files == 2 + len(nasty) + 1 and not snapshot.left_out and not snapshot.partial


async def test_equal_states_have_one_name_and_nothing_is_read_again(root: Path, store: SnapshotStore) -> None:
    time.sleep(0.05)
    first = await store.take(root)
    second = await store.take(root)
    assert second.tree == first.tree and second.read == 0 and second.written == 0
    (root / "b.txt").write_text("c\n")
    third = await store.take(root)
    assert third.tree != first.tree and third.read == 1
    (root / "b.txt").write_text("b\n")
    assert (await store.take(root)).tree == first.tree
    assert (await SnapshotStore(store.folder).take(root)).tree == first.tree


async def test_a_change_within_a_tick_of_the_clock_is_noticed(root: Path, store: SnapshotStore) -> None:
    seen = set()
    for number in range(30):
        (root / "b.txt").write_text(f"{number:04d}\n")
        seen.add((await store.take(root)).tree)
    assert len(seen) == 30


async def test_a_change_that_hides_its_time_is_noticed(root: Path, store: SnapshotStore) -> None:
    path = root / "b.txt"
    time.sleep(0.05)
    first = await store.take(root)
    before = path.stat()
    path.write_text("c\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (await store.take(root)).tree != first.tree


async def test_diff_names_what_differs(root: Path, store: SnapshotStore) -> None:
    before = await store.take(root)
    (root / "b.txt").unlink()
    (root / "src" / "a.py").chmod(0o755)
    (root / "new").mkdir()
    (root / "new" / "c").write_text("c")
    after = await store.take(root)
    changes = {change.path: change for change in await store.diff(before.tree, after.tree)}
    assert sorted(changes) == [b"b.txt", b"new", b"new/c", b"src/a.py"]
    assert changes[b"b.txt"].after is None and changes[b"new/c"].before is None
    assert not len(await store.diff(after.tree, after.tree))


async def test_large_and_special_files_are_left_out_and_said(root: Path, store: SnapshotStore) -> None:
    with (root / "sparse").open("wb") as file:
        file.truncate(4 << 30)
    with socket.socket(socket.AF_UNIX) as listening:
        short = Path(f"/proc/self/fd/{os.open(root, os.O_RDONLY | os.O_DIRECTORY)}")
        listening.bind(str(short / "socket"))
        os.close(int(short.name))
        began = time.thread_time()
        snapshot = await store.take(root)
    assert left_out(snapshot) == {"too_large": 1, "special": 1}
    assert {example for one in snapshot.left_out for example in one.examples} == {"sparse", "socket"}
    assert time.thread_time() - began < 1 and not snapshot.partial


async def test_dependencies_are_left_out_and_small_ignored_files_are_not(
    root: Path, store: SnapshotStore
) -> None:
    (root / ".gitignore").write_text("node_modules/\n.venv\n.env\nbuild/\n")
    for folder in (
        "node_modules/x",
        ".venv/lib",
        "build",
        "src/__pycache__",
        "tool",
        "marked",
        "env",
        "target",
    ):
        (root / folder).mkdir(parents=True)
        (root / folder / "file").write_text("x")
    (root / ".env").write_text("KEY=1")
    (root / "tool" / ".gitignore").write_text("# made by a tool\n*\n")
    (root / "marked" / "CACHEDIR.TAG").write_text("Signature: 8a477f597d28d172789f06886806bc55")
    (root / "env" / "pyvenv.cfg").write_text("home = /usr/bin")
    snapshot = await store.take(root)
    covered = {path for path, entry in (await store.entries(snapshot.tree)).items() if entry.type == "file"}
    assert left_out(snapshot) == {"dependencies": 6}
    assert {b".env", b"build/file", b"target/file"} <= covered
    assert not any(b"node_modules" in path or b".venv/" in path for path in covered)


@pytest.mark.parametrize(
    ("rules", "ignored"),
    [
        ("node_modules", True),
        ("/node_modules/", True),
        ("**/node_modules/*", True),
        ("node_mod*", True),
        ("node_modules/\n!node_modules/", False),
        ("sub/node_modules", False),
        ("# node_modules", False),
        ("*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b", False),
    ],
)
async def test_which_folders_count_as_ignored(
    root: Path, store: SnapshotStore, rules: str, ignored: bool
) -> None:
    (root / ".gitignore").write_text(rules + "\n")
    (root / "node_modules").mkdir()
    (root / "node_modules" / "x").write_text("x")
    assert left_out(await store.take(root)) == ({"dependencies": 1} if ignored else {})


async def test_links_are_never_followed(root: Path, store: SnapshotStore, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "key").write_text("a secret")
    (root / "escape").symlink_to(outside)
    snapshot = await store.take(root)
    with pytest.raises(UnknownSnapshot):
        await store.read(content_hash(b"a secret"))
    assert (await store.entries(snapshot.tree))[b"escape"].type == "link"
    (tmp_path / "alias").symlink_to(root)
    with pytest.raises(SnapshotError):
        await store.take(tmp_path / "alias")


async def test_what_cannot_be_read_is_said(root: Path, store: SnapshotStore) -> None:
    (root / "locked").mkdir()
    (root / "locked" / "x").write_text("x")
    (root / "locked").chmod(0)
    try:
        snapshot = await store.take(root)
    finally:
        (root / "locked").chmod(0o700)
    assert left_out(snapshot) == ({} if os.geteuid() == 0 else {"unreadable": 1})
    with pytest.raises(SnapshotError):
        await store.take(root / "missing")


async def test_out_of_budget_is_partial_and_later_snapshots_catch_up(
    root: Path, store: SnapshotStore
) -> None:
    for number in range(40):
        (root / f"f{number}").write_bytes(os.urandom(1000))
    (root / "deep").mkdir()
    (root / "deep" / "x").write_text("x")
    time.sleep(0.05)
    short = Limits(new_bytes=10_000)
    snapshot = await store.take(root, short)
    assert snapshot.partial and left_out(snapshot)["budget"] > 20
    for _ in range(5):
        snapshot = await store.take(root, short)
    assert not snapshot.partial and snapshot.files == 43
    assert (await store.take(root, Limits(seconds=0))).partial
    assert left_out(await store.take(root, Limits(entries=3))).keys() == {"budget"}


async def test_the_store_is_for_its_owner_only(root: Path, store: SnapshotStore) -> None:
    await store.take(root)
    await store.hold("s1", [await store.put(b"x")])
    for path in (store.folder, *store.folder.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


async def test_damage_is_noticed(root: Path, store: SnapshotStore) -> None:
    name = await store.put(b"some content")
    store.objects.path(name).write_bytes(b"something else")
    with pytest.raises(DamagedStore):
        await store.read(name)
    other = await store.put(b"other content")
    store.objects.path(other).write_bytes(store.objects.path(await store.put(b"third")).read_bytes())
    with pytest.raises(DamagedStore):
        await store.read(other)
    for wrong in ("", "../../etc/passwd", "0" * 39, "G" * 40, "0" * 40):
        with pytest.raises(UnknownSnapshot):
            await store.read(wrong)


async def test_a_broken_stat_cache_only_costs_time(root: Path, store: SnapshotStore) -> None:
    for number in range(40):
        (root / f"f{number}").write_text(str(number))
    time.sleep(0.05)
    snapshot = await store.take(root)
    (cache,) = (store.folder / "cache").iterdir()
    assert (await SnapshotStore(store.folder).take(root)).read == 0
    cache.write_bytes(cache.read_bytes()[:-100])
    again = await SnapshotStore(store.folder).take(root)
    assert again.tree == snapshot.tree and again.read == 42


def git(folder: Path, *arguments: str) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    settings = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"]
    done = subprocess.run(
        ["git", *settings, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.case("agent-21")
async def test_nested_repositories_are_covered_and_not_disturbed(
    root: Path, store: SnapshotStore, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q", "-b", "main")
    (other / "lib.c").write_text("int x;\n")
    git(other, "add", ".")
    git(other, "commit", "-q", "-m", "one")
    git(root, "init", "-q", "-b", "main")
    git(root, "submodule", "add", "-q", str(other), "sub")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "one")
    git(root, "clone", "-q", str(other), "clone")
    (root / "unborn").mkdir()
    git(root / "unborn", "init", "-q")
    (root / "unborn" / "x").write_text("x")
    (root / "clone" / "lib.c").write_text("int dirty;\n")

    def metadata() -> dict[str, bytes]:
        return {
            str(path): path.read_bytes()
            for top in (
                root / ".git",
                root / "sub" / ".git",
                root / "clone" / ".git",
                root / "unborn" / ".git",
            )
            for path in ([top] if top.is_file() else sorted(top.rglob("*")))
            if path.is_file()
        }

    status = [
        git(folder, "--no-optional-locks", "status", "--porcelain") for folder in (root, root / "clone")
    ]
    before = metadata()
    snapshot = await store.take(root)
    entries = await store.entries(snapshot.tree)
    assert {b"sub/lib.c", b"clone/lib.c", b"unborn/x", b".gitmodules"} <= entries.keys()
    assert left_out(snapshot) == {"git": 4}
    assert snapshot.git is not None
    assert snapshot.git["head"] == "ref: refs/heads/main"
    assert (
        snapshot.git["commit"] == git(root, "rev-parse", "HEAD").strip() == snapshot.git["branches"]["main"]
    )
    (root / "clone" / "lib.c").write_text("int y;\n")
    (root / "sub" / "lib.c").unlink()
    restored = await store.restore(root, snapshot.tree)
    assert set(restored.changed) == {b"clone/lib.c", b"sub/lib.c"} and not restored.kept
    assert metadata() == before
    assert status == [
        git(folder, "--no-optional-locks", "status", "--porcelain") for folder in (root, root / "clone")
    ]
    git(root, "pack-refs", "--all")
    assert (await store.take(root)).git == snapshot.git


async def test_the_event_loop_goes_on_meanwhile(root: Path, store: SnapshotStore) -> None:
    for number in range(300):
        (root / f"f{number}").write_bytes(os.urandom(2000))
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.001)
            ticks += 1

    ticking = asyncio.create_task(tick())
    await store.take(root)
    ticking.cancel()
    assert ticks > 3


async def test_two_stores_and_many_takes_share_a_folder(root: Path, store: SnapshotStore) -> None:
    other = SnapshotStore(store.folder)
    trees = await asyncio.gather(*(one.take(root) for one in (store, other) for _ in range(4)))
    assert len({snapshot.tree for snapshot in trees}) == 1


DYING = """
import os, signal, sys
from pathlib import Path
from tools.snapshots import SnapshotStore

root, folder, left = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
real = os.replace

def replace(*given, **named):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*given, **named)

os.replace = replace
store = SnapshotStore(folder)
store._take(root, store.limits)
"""


@pytest.mark.case("agent-21")
async def test_killed_amid_a_snapshot_the_store_is_readable_and_no_repository_was_touched(
    root: Path, store: SnapshotStore
) -> None:
    (root / "nested").mkdir()
    git(root, "init", "-q")
    git(root / "nested", "init", "-q")
    (root / "nested" / "x").write_text("x")
    before = {path: path.lstat() for path in sorted(root.rglob("*"))}
    status = git(root / "nested", "--no-optional-locks", "status", "--porcelain")
    first = await store.take(root)
    (root / "b.txt").write_text("changed")
    for left in range(6):
        (root / f"more{left}").write_text(str(left))
        arguments = [sys.executable, "-c", DYING, str(root), str(store.folder), str(left)]
        ran = subprocess.run(arguments, cwd=HERE, capture_output=True, text=True)
        assert ran.returncode in (0, -signal.SIGKILL), ran.stderr
        again = SnapshotStore(store.folder)
        assert (await again.read((await again.entries(first.tree))[b"b.txt"].name)) == b"b\n"
        now = await again.take(root)
        for entry in (await again.entries(now.tree)).values():
            if entry.stored:
                await again.read(entry.name)
    (root / "b.txt").write_text("b\n")
    for path, found in before.items():
        if ".git" in path.parts:
            now_found = path.lstat()
            assert (now_found.st_ino, now_found.st_mtime_ns) == (found.st_ino, found.st_mtime_ns), path
    assert git(root / "nested", "--no-optional-locks", "status", "--porcelain") == status
    await store.sweep(young_s=0)
    assert not list((store.folder / "new").iterdir())
