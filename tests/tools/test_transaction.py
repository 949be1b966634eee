"""Several files at once: a process that dies anywhere in between leaves all old or all new."""

import ast
import asyncio
import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from agent import loop
from agent.log import MemoryLog
from tests.support.calling import call, saw, tree, workspace
from tests.support.scripted_model import ScriptedModel
from tests.support.turns import opened, turn
from tools.apply_patch import ApplyPatch
from tools.errors import EnvironmentFault
from tools.transaction import FileWrite, Transaction, recover
from tools.workspace import Workspace, content_hash

REPOSITORY = Path(__file__).parents[2]
BEFORE = {"a": b"a\n", "b": b"b\n", "d": b"d\n"}
AFTER = {"a": b"A\n", "new/c": b"c\n", "moved/d": b"D\n"}

DIES = """
import os, sys
from pathlib import Path
from tools import transaction
from tools.transaction import FileWrite, Transaction, recover

root, until = Path(sys.argv[1]), sys.argv[2]
limit = calls = 0

def dying(function):
    def wrapped(*arguments, **options):
        global calls
        calls += 1
        if calls == limit:
            os._exit(9)
        return function(*arguments, **options)
    return wrapped

for name in ("sync", "named", "rename_new", "remove"):
    setattr(transaction, name, dying(getattr(transaction, name)))
for name in ("replace", "link", "fsync"):
    setattr(os, name, dying(getattr(os, name)))

def files():
    return sorted(
        (str(path.relative_to(root)), path.read_bytes().decode())
        for path in root.rglob("*") if path.is_file() and ".etude-" not in path.name
    )

def change():
    one = Transaction(root, [
        FileWrite("a", b"a\\n", b"A\\n"),
        FileWrite("b", b"b\\n", None),
        FileWrite("new/c", None, b"c\\n"),
        FileWrite("moved/d", None, b"D\\n", source="d"),
        FileWrite("d", b"d\\n", None),
    ])
    one.apply(lambda: None)
    one.commit()

for step in range(1, 100):
    child = os.fork()
    if not child:
        limit, calls = step, 0
        change()
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    halves = files()
    if until == "half" and ("a", "A\\n") in halves and (root / "d").exists():
        break
    restored = recover(root)
    print(repr((status, halves, restored, files(), sorted(os.listdir(root)), recover(root))))
    if status == 0:
        break
    for folder in ("new", "moved"):
        for path in (root / folder).glob("*"):
            path.unlink()
        if (root / folder).exists():
            (root / folder).rmdir()
    for name in "abd":
        (root / name).write_text(name + "\\n")
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = (tmp_path / "work").resolve()
    folder.mkdir()
    for name, data in BEFORE.items():
        (folder / name).write_bytes(data)
    return folder


def dies(root: Path, until: str) -> list[tuple[Any, ...]]:
    """Make the change in processes that end themselves one step later each, until one comes to its end.

    In between, what was left is mended. Answers, per process, its exit status, the files then, what was
    restored, the files and the root's names after that, and what a second try restores. With `until` "half"
    it ends when the first file is new and the last one old, and leaves that.
    """
    path = f"{REPOSITORY}:{os.environ.get('PYTHONPATH', '')}"
    ran = subprocess.run(
        [sys.executable, "-c", DIES, str(root), until],
        env={**os.environ, "PYTHONPATH": path},
        check=True,
        capture_output=True,
        text=True,
    )
    return [ast.literal_eval(line) for line in ran.stdout.splitlines()]


def files(root: Path) -> dict[str, bytes]:
    return {
        path: data for path, data in tree(root).items() if not path.rpartition("/")[2].startswith(".etude-")
    }


def test_a_process_that_dies_at_any_step_leaves_all_or_nothing(root: Path) -> None:
    old, new = (sorted((name, data.decode()) for name, data in files.items()) for files in (BEFORE, AFTER))
    outcomes: set[tuple[str, bool]] = set()
    ended = dies(root, "end")
    for step, (status, halves, restored, now, names, again) in enumerate(ended, 1):
        assert now in (old, new), f"step {step}: {halves} became {now}"
        assert names in (["a", "b", "d"], ["a", "moved", "new"]), step
        assert again == [] and bool(restored) <= (now == old)
        assert status == (0 if step == len(ended) else 9)
        outcomes.add(("old" if now == old else "new", halves not in (old, new)))
    assert outcomes == {("old", False), ("old", True), ("new", False)}
    assert 30 < len(ended) < 99


async def test_the_next_patch_mends_what_a_dead_process_left(root: Path) -> None:
    dies(root, "half")
    assert files(root) not in (BEFORE, AFTER)
    place = workspace(root)
    for name in BEFORE:
        place.seen[name] = content_hash(BEFORE[name])
    await call(ApplyPatch(), place, patch="*** Begin Patch\n*** Update File: b\n@@\n-b\n+B\n*** End Patch\n")
    assert tree(root) == {**BEFORE, "b": b"B\n"}


async def test_a_session_that_is_opened_again_mends_it_and_says_so(root: Path) -> None:
    with ScriptedModel([{"calls": [{"name": "apply_patch", "arguments": {"patch": "…"}}]}, "Done."]) as model:
        async with opened(root, model) as session:
            await turn(session)
            events = session.log.events  # pyright: ignore[reportAttributeAccessIssue] - a MemoryLog
        dies(root, "half")
        assert files(root) not in (BEFORE, AFTER)
        generation = next(at for at, event in enumerate(events) if event.type == "generation")
        async with opened(root, model, log=MemoryLog(session.id, events[: generation + 1])) as again:
            await loop.recover(again)
            assert tree(root) == BEFORE
            assert "What it had half done was taken back: " in again.state.messages[-1]["content"]


def test_what_somebody_wrote_after_the_crash_stays(root: Path) -> None:
    dies(root, "half")
    assert files(root) not in (BEFORE, AFTER)
    (root / "a").write_bytes(b"the user's\n")
    recover(root)
    assert tree(root) == {**BEFORE, "a": b"the user's\n"}


def test_a_journal_in_use_is_left_alone(root: Path) -> None:
    one = Transaction(root, [FileWrite("a", b"a\n", b"A\n"), FileWrite("b", b"b\n", None)])
    one.apply(lambda: None)
    assert recover(root) == []
    assert files(root) == {"a": b"A\n", "d": b"d\n"}
    one.undo()
    assert tree(root) == BEFORE


@pytest.mark.case("agent-24")
def test_a_journal_that_somebody_made_up_leads_nowhere(root: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x").write_bytes(b"x")
    (root / "dir").symlink_to(tmp_path / "outside")
    (root / ".git" / "hooks").mkdir(parents=True)
    (root / ".git" / "hooks" / ".etude-1.tmp").write_bytes(b"evil")
    (root / ".git" / "hooks" / "pre-commit").write_bytes(b"good")
    good = content_hash(b"good")
    for number, step in enumerate(
        (
            {
                "path": ".git/hooks/pre-commit",
                "new": ".etude-2.tmp",
                "old": ".etude-1.tmp",
                "after": good,
            },
            {"path": "../outside/x", "new": ".etude-2.tmp", "old": None, "after": content_hash(b"x")},
            {"path": "dir/x", "new": ".etude-2.tmp", "old": None, "after": content_hash(b"x")},
            {"path": "a", "new": "../outside/x", "old": "b", "after": content_hash(b"a\n")},
            {"path": "a", "unknown": 1},
            {"path": 7},
        )
    ):
        record = {"version": 1, "steps": [step], "made": ["../outside", ".git", "dir"]}
        (root / f".etude-{number}.journal").write_bytes(orjson.dumps(record))
    (root / ".etude-x.journal").mkdir()
    os.mkfifo(root / ".etude-y.journal")
    (root / ".etude-z.journal").symlink_to(tmp_path / "outside" / "x")
    (root / ".etude-w.journal").write_bytes(b"\xff not json")
    recover(root)
    assert tree(tmp_path / "outside") == {"x": b"x"}
    assert (root / ".git" / "hooks" / "pre-commit").read_bytes() == b"good"
    assert files(root).items() >= BEFORE.items()


def test_a_lock_that_somebody_holds_keeps_nobody_from_working(root: Path) -> None:
    (root / ".etude-1.journal").write_bytes(b"{}")
    with (root / ".etude-1.journal").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        one = Transaction(root, [FileWrite("a", b"a\n", b"A\n"), FileWrite("b", b"b\n", b"B\n")])
        recover(root)
        one.apply(lambda: None)
        one.commit()
    assert (root / "a").read_bytes() == b"A\n"


def test_a_full_disk_changes_nothing(root: Path) -> None:
    """In a process of its own, whose files may not grow beyond a limit."""
    script = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from tools.errors import EnvironmentFault\n"
        "from tools.transaction import FileWrite, Transaction\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "writes = [FileWrite('a', b'a\\n', b'A\\n'), FileWrite('n/c', None, b'x' * 10_000), "
        "FileWrite('b', b'b\\n', None)]\n"
        "try:\n"
        "    Transaction(Path(sys.argv[1]), writes).apply(lambda: None)\n"
        "except EnvironmentFault:\n"
        "    sys.exit(0)\n"
        "sys.exit(1)\n"
    )
    path = f"{REPOSITORY}:{os.environ.get('PYTHONPATH', '')}"
    subprocess.run(
        [sys.executable, "-c", script, str(root)], check=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert tree(root) == BEFORE and sorted(os.listdir(root)) == ["a", "b", "d"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_a_folder_that_may_not_be_written_stops_all(root: Path) -> None:
    (root / "sub").mkdir()
    (root / "sub" / "x").write_bytes(b"x\n")
    (root / "sub").chmod(0o555)
    place: Workspace = workspace(root)
    saw(place, "a")
    patch = "*** Begin Patch\n*** Update File: a\n@@\n-a\n+A\n*** Delete File: sub/x\n*** End Patch\n"
    with pytest.raises(EnvironmentFault):
        await call(ApplyPatch(), place, patch=patch)
    (root / "sub").chmod(0o755)
    assert tree(root) == {**BEFORE, "sub/x": b"x\n"}
    assert asyncio.get_running_loop()
