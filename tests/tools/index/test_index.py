"""The index follows the files, however they change, and says what it does not hold."""

import asyncio
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.tools.index.conftest import Indexed
from tools.index import Index
from tools.index.queries import Scope, definitions, uses
from tools.index.schema import named_path

PATIENT = 30.0


def names(index: Index) -> set[str]:
    with closing(index.connect()) as db:
        return {name for (name,) in db.execute("SELECT name FROM symbols")}


def files(index: Index) -> dict[str, str]:
    with closing(index.connect()) as db:
        return {named_path(path): state for path, state in db.execute("SELECT path, state FROM files")}


async def refreshed(index: Index) -> set[str]:
    state = await index.refresh(timeout_s=PATIENT)
    assert state.phase == "fresh", state
    return names(index)


async def test_it_is_cold_then_fresh_and_lies_in_the_cache(
    root: Path, tmp_path: Path, indexed: Indexed
) -> None:
    (root / "a.py").write_text("def one(): pass\n")
    index = indexed(root)
    assert index.state.phase == "cold" and index.indexer.pid is None
    state = await index.ready(PATIENT)
    assert (state.phase, state.done, state.total) == ("fresh", 1, 1)
    assert names(index) == {"one"}
    assert index.database.is_relative_to(tmp_path / "cache")
    assert index.database.stat().st_mode & 0o777 == 0o600
    assert index.database.parent.stat().st_mode & 0o777 == 0o700


async def test_a_query_right_after_a_change_sees_it(root: Path, indexed: Indexed) -> None:
    index = indexed(root)
    assert await refreshed(index) == set()
    (root / "a.py").write_text("def one(): pass\n")
    assert await refreshed(index) == {"one"}
    for number in range(20):
        (root / "a.py").write_text(
            f"def one_{number:02}(): pass\n"
        )  # of one size, within one tick of the clock
        assert await refreshed(index) == {f"one_{number:02}"}
    os.replace(root / "a.py", root / "b.py")
    assert await refreshed(index) == {"one_19"} and set(files(index)) == {"b.py"}
    (root / "b.py").unlink()
    assert await refreshed(index) == set() and files(index) == {}


async def test_folders_come_go_and_move(root: Path, indexed: Indexed) -> None:
    index = indexed(root)
    await index.ready(PATIENT)
    (root / "empty").mkdir()
    assert await refreshed(index) == set()
    (root / "empty" / "deep").mkdir()
    (root / "empty" / "deep" / "a.py").write_text("def one(): pass\n")
    assert await refreshed(index) == {"one"}
    (root / "empty" / "b.py").write_text("def two(): pass\n")
    assert await refreshed(index) == {"one", "two"}
    (root / "empty").rename(root / "full")
    assert await refreshed(index) == {"one", "two"}
    assert set(files(index)) == {"full/deep/a.py", "full/b.py"}
    (root / "full" / "deep" / "a.py").write_text("def three(): pass\n")
    assert await refreshed(index) == {"two", "three"}
    shutil.rmtree(root / "full")
    assert await refreshed(index) == set()


async def test_a_file_in_a_folder_that_held_nothing_before_is_found(root: Path, indexed: Indexed) -> None:
    (root / "hollow").mkdir()
    (root / "a.py").write_text("")
    index = indexed(root)
    await index.ready(PATIENT)
    (root / "hollow" / "b.py").write_text("def one(): pass\n")
    assert await refreshed(index) == {"one"}


async def test_ignored_files_are_left_out_and_come_with_their_rule(root: Path, indexed: Indexed) -> None:
    (root / ".git").mkdir()
    (root / ".git" / "hook.py").write_text("def hook(): pass\n")
    (root / ".gitignore").write_text("build/\n*_pb2.py\n")
    for path in ("a.py", "a_pb2.py", "build/b.py", ".hidden/c.py"):
        (root / path).parent.mkdir(exist_ok=True)
        name = path.replace("/", "_").replace(".", "_")
        (root / path).write_text(f"def {name}(): pass\n")
    index = indexed(root)
    assert await refreshed(index) == {"a_py", "_hidden_c_py"}
    (root / "new_pb2.py").write_text("def new(): pass\n")
    (root / "build" / "b.py").write_text("def again(): pass\n")
    assert await refreshed(index) == {"a_py", "_hidden_c_py"}
    (root / ".gitignore").write_text("*_pb2.py\n")
    assert await refreshed(index) == {"a_py", "_hidden_c_py", "again"}
    (root / ".gitignore").write_text("*.py\n")
    assert await refreshed(index) == set()


async def test_what_changed_while_nobody_watched_is_found(root: Path, indexed: Indexed) -> None:
    for number in range(5):
        (root / f"f{number}.py").write_text(f"def f{number}(): pass\n")
    first = indexed(root)
    assert len(await refreshed(first)) == 5
    await first.close()
    (root / "f0.py").unlink()
    (root / "f1.py").write_text("def changed(): pass\n")
    (root / "f2.py").rename(root / "g2.py")
    (root / "new.py").write_text("def new(): pass\n")
    assert await refreshed(indexed(root)) == {"changed", "f2", "f3", "f4", "new"}


async def test_only_what_changed_is_read_again(root: Path, indexed: Indexed) -> None:
    for number in range(5):
        (root / f"f{number}.py").write_text(f"def f{number}(): pass\n")
    await asyncio.sleep(0.05)  # files this new would be read once more
    index = indexed(root)
    await index.ready(PATIENT)

    def rows() -> dict[str, int]:
        with closing(index.connect()) as db:
            return dict(db.execute("SELECT path, id FROM files").fetchall())

    before = rows()
    (root / "f0.py").write_text("def other(): pass\n")
    await index.refresh(timeout_s=PATIENT)
    await index.close()
    again = indexed(root)
    await again.ready(PATIENT)
    after = rows()
    assert {path for path in before if before[path] != after[path]} == {"f0.py"}


async def test_a_workspace_that_is_swapped_for_another_is_indexed_anew(root: Path, indexed: Indexed) -> None:
    (root / "a.py").write_text("def one(): pass\n")
    index = indexed(root)
    assert await refreshed(index) == {"one"}
    root.rename(root.with_name("old"))
    root.mkdir()
    (root / "b.py").write_text("def two(): pass\n")
    assert await refreshed(index) == {"two"}
    shutil.rmtree(root)
    state = await index.refresh(timeout_s=PATIENT)
    assert state.phase == "unavailable" and state.message


async def test_two_servers_share_one_index(root: Path, indexed: Indexed) -> None:
    for number in range(300):
        (root / f"f{number}.py").write_text(f"def f{number}(): pass\n\ndef both(): return f{number}\n")
    first, second = indexed(root), indexed(root)
    assert first.database == second.database
    states = await asyncio.gather(first.ready(PATIENT), second.ready(PATIENT))
    assert [state.phase for state in states] == ["fresh", "fresh"], states
    assert first.indexer.pid != second.indexer.pid
    with closing(second.connect()) as db:
        assert db.execute("SELECT count(*) FROM files").fetchone() == (300,)
        assert db.execute("SELECT count(*) FROM symbols").fetchone() == (600,)
    for number in range(10):
        (root / f"f{number}.py").write_text("def changed(): pass\n")
        await asyncio.gather(first.refresh(timeout_s=PATIENT), second.refresh(timeout_s=PATIENT))
    with closing(first.connect()) as db:
        assert definitions(db, "changed", Scope(), 20).total == 10
        assert db.execute("SELECT count(*) FROM symbols").fetchone() == (590,)


async def test_one_child_serves_all_workspaces_of_a_server(tmp_path: Path) -> None:
    from tools.index.indexer import Indexer
    from tools.sandbox.policy import SandboxPolicy
    from tools.workspace import Workspace

    shared = Indexer()
    spaces: list[Workspace] = []
    for name in ("a", "b", "a"):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "code.py").write_text(f"def {name}(): pass\n")
        spaces.append(Workspace(tmp_path / name, SandboxPolicy(), cache=tmp_path / "cache", indexer=shared))
    assert [await refreshed(Index.of(space)) for space in spaces] == [{"a"}, {"b"}, {"a"}]
    pid = shared.pid
    await spaces[0].close()
    (tmp_path / "a" / "code.py").write_text("def changed(): pass\n")
    assert await refreshed(Index.of(spaces[2])) == {"changed"}
    assert shared.pid == pid is not None
    for space in spaces[1:]:
        await space.close()
    await shared.close()
    assert shared.pid is None


async def test_without_a_cache_it_is_gone_with_the_workspace(root: Path) -> None:
    from tools.sandbox.policy import SandboxPolicy
    from tools.workspace import Workspace

    (root / "a.py").write_text("def one(): pass\n")
    workspace = Workspace(root, SandboxPolicy())
    index = Index.of(workspace)
    assert await refreshed(index) == {"one"}
    assert index.database.exists() and Index.of(workspace) is index
    await workspace.close()
    assert not index.database.exists()


async def test_a_damaged_database_is_built_again(root: Path, indexed: Indexed) -> None:
    for number in range(200):
        (root / f"f{number}.py").write_text(f"def f{number}(): pass\n")
    index = indexed(root)
    await index.ready(PATIENT)
    await index.indexer.close()
    with closing(sqlite3.connect(index.database)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    size = index.database.stat().st_size
    assert size > 30_000
    with index.database.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(size - 8192))
    assert len(await refreshed(indexed(root))) == 200
    index.database.write_bytes(b"this is no database" * 1000)
    assert len(await refreshed(indexed(root))) == 200


async def test_an_impatient_query_gets_a_state_that_says_so(root: Path, indexed: Indexed) -> None:
    for number in range(2000):
        (root / f"f{number}.py").write_text(f"def f{number}(): pass\n" * 10)
    index = indexed(root)
    state = await index.refresh(timeout_s=0.0)
    assert not state.complete and "incomplete" in " ".join(state.notes())
    state = await index.ready(PATIENT)
    assert state.complete and state.notes() == []


async def test_uses_are_found_with_their_lines(root: Path, indexed: Indexed) -> None:
    (root / "a.py").write_text("def one():\n    return 1\n\nx = one() + one()\n# one\n'one'\n")
    (root / "b.js").write_text("import { one } from 'a';\none();\n")
    index = indexed(root)
    await index.ready(PATIENT)
    with closing(index.connect()) as db:
        found = uses(db, "one", Scope())
        assert [(use.path, use.lines) for use in found] == [("a.py", [1, 4]), ("b.js", [1, 2])]
        assert found[0].defined == {1}
        assert [use.path for use in uses(db, "one", Scope("b.js"))] == ["b.js"]
        assert uses(db, "on", Scope()) == []
