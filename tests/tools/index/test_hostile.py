"""What lies in a workspace may be made to break an index: it must stay, go on, and say what it left out."""

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import psutil
import pytest

import tools.index.site
from tests.tools.index.conftest import Indexed
from tests.tools.index.test_index import PATIENT, files, names
from tools.index import Index
from tools.index.journal import Journal
from tools.index.languages import EXTENSIONS
from tools.index.layer import IndexedFile
from tools.index.parsing import MAX_BYTES, parse
from tools.index.schema import open_for_reading
from tools.index.site import Site
from tools.index.words import Words

ROOT = Path(__file__).resolve().parents[3]


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def until_gone(pid: int) -> None:
    for _ in range(100):
        if gone(pid):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{pid} is still there")


async def test_a_child_killed_amid_its_work_is_followed_by_one_that_ends_it(
    root: Path, indexed: Indexed
) -> None:
    for number in range(600):
        (root / f"f{number}.py").write_text(f"def f{number}(): pass\n" * 50)
    index = indexed(root)
    pids: set[int] = set()
    for _ in range(3):
        await index.refresh(timeout_s=0.3)
        pid = index.indexer.pid
        if pid is not None and pid not in pids:
            pids.add(pid)
            os.kill(pid, signal.SIGKILL)
            await until_gone(pid)
    assert pids
    state = await index.ready(PATIENT)
    assert (state.phase, state.done) == ("fresh", 600)
    assert index.indexer.pid not in pids
    assert len(names(index)) == 600


async def test_a_file_that_ends_the_child_twice_is_left_out_until_it_changes(
    root: Path, indexed: Indexed
) -> None:
    (root / "good.py").write_text("def good(): pass\n")
    (root / "slow.py").write_text("def slow(a, b):\n    return [a, {b: (a, b)}]\n" * 20_000)
    index = indexed(root)
    killed: set[int] = set()
    waiting = asyncio.create_task(index.ready(PATIENT))
    while not waiting.done():
        await asyncio.sleep(0.001)
        pid = index.indexer.pid
        if (
            len(killed) < 2
            and pid is not None
            and pid not in killed
            and index.indexer.working_on == "slow.py"
        ):
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
            await until_gone(pid)
    state = await waiting
    assert len(killed) == 2
    assert state.phase == "fresh" and state.left_out == {"crashed": 1}
    assert files(index) == {"good.py": "indexed", "slow.py": "crashed"}
    assert "1 that crashed the parser" in " ".join(state.notes())
    (root / "slow.py").write_text("def quick(): pass\n")
    state = await index.refresh(timeout_s=PATIENT)
    assert state.left_out == {} and names(index) == {"good", "quick"}


HOSTILE = {
    "nested": b"(" * 400_000,
    "braces": b"{[(" * 200_000,
    "one line": b"x = [" + b"1, " * 320_000 + b"]",
    "one word": b"a" * 900_000,
    "broken": b"class def ( { ' \" /* <!-- ]] ) end if :\n" * 5_000,
    "not UTF-8": b"def f\xff\xfe(\x80): # \xe9\n" * 2_000,
    "half a string": b"x = '''" + b"abc\n" * 100_000,
    "carriage returns": b"def f():\r  pass\r" * 5_000,
}


FEW = {"python", "c", "java", "typescript"}
LANGUAGES = {
    "nested": set(EXTENSIONS),
    "broken": {"rust", "c"},
    "braces": {"python", "java"},
    "one line": {"python", "go"},
}
"""Some parsers take for ever with some of the texts: such a file is left out, and costs its time once."""


@pytest.mark.parametrize("kind", HOSTILE)
async def test_hostile_text_in_every_language(root: Path, indexed: Indexed, kind: str) -> None:
    for name, endings in EXTENSIONS.items():
        if name not in LANGUAGES.get(kind, FEW):
            continue
        (root / f"{name}.{endings.split()[0]}").write_bytes(HOSTILE[kind])
    (root / "zz.py").write_text("def last(): pass\n")
    index = indexed(root)
    began = time.monotonic()
    state = await index.ready(110)
    assert state.phase == "fresh", (state, time.monotonic() - began)
    assert "last" in names(index)
    states = files(index)
    assert states.pop("zz.py") == "indexed"
    assert set(states.values()) <= {"indexed", "crashed"}
    assert "indexed" in states.values()


async def test_what_is_no_text_file_is_never_opened(root: Path, tmp_path: Path, indexed: Indexed) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.py").write_text("def secret(): pass\n")
    os.mkfifo(root / "fifo.py")
    (root / "link.py").symlink_to(outside / "secret.py")
    (root / "linked").symlink_to(outside)
    (root / "loop").symlink_to(root)
    (root / "dangling.py").symlink_to("nowhere")
    with (root / "sparse.py").open("wb") as file:
        file.truncate(4 << 30)
    (root / "large.py").write_bytes(b"x = 1\n" * (MAX_BYTES // 6 + 1))
    (root / "program.py").write_bytes(b"\x7fELF\0\0def no(): pass\n")
    (root / "good.py").write_text("def good(): pass\n")
    (root / os.fsdecode(b"caf\xe9.py")).write_text("def odd(): pass\n")
    (root / "new\nline.py").write_text("def line(): pass\n")
    with closing(socket.socket(socket.AF_UNIX)) as listening:
        listening.bind(str(root / "socket.py"))
        index = indexed(root)
        state = await index.ready(PATIENT)
    assert state.phase == "fresh" and state.left_out == {"large": 2, "binary": 1}
    assert names(index) == {"good", "odd", "line"}
    assert files(index)[os.fsdecode(b"caf\xe9.py")] == "indexed"
    assert "2 over 1 MB" in " ".join(state.notes())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_what_may_not_be_read_is_counted(root: Path, indexed: Indexed) -> None:
    (root / "closed.py").write_text("def closed(): pass\n")
    (root / "closed.py").chmod(0)
    index = indexed(root)
    assert (await index.ready(PATIENT)).left_out == {"unreadable": 1}
    (root / "closed.py").chmod(0o600)
    assert (await index.refresh(timeout_s=PATIENT)).left_out == {}
    assert names(index) == {"closed"}


def test_of_too_many_files_those_in_a_known_language_come_first(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools.index.site, "MAX_FILES", 50)
    for number in range(60):
        (root / f"a{number:02}.txt").write_text("text\n")
        (root / f"z{number:02}.py").write_text(f"def f{number}(): pass\n")
    site = Site(root, tmp_path / "cache" / "index.db", Journal(os.memfd_create("journal")))
    site.ask(1, None)
    while site.step():
        continue
    report = site.report()
    site.close()
    assert report["phase"] == "fresh" and report["done"] == report["total"] == 50
    assert report["left_out"] == {"beyond": 70}


@pytest.mark.parametrize("fault", [ValueError, RecursionError, MemoryError, SystemError, OSError])
def test_whatever_a_parser_or_a_layer_raises_leaves_out_that_file_alone(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: type[Exception]
) -> None:
    for name in ("good", "parser", "layer", "other"):
        (root / f"{name}.py").write_text(f"def {name}_one(): pass\n")
    parse, add = tools.index.site.parse, Words.add

    def parsed(name: str, data: bytes) -> object:
        if b"parser_one" in data:
            raise fault("as a hostile file made it")
        return parse(name, data)

    def added(self: Words, taken: Sequence[IndexedFile]) -> None:
        if fault is not OSError and any(file.path == "layer.py" for file in taken):
            raise fault("as a hostile file made it")
        add(self, taken)

    monkeypatch.setattr(tools.index.site, "parse", parsed)
    monkeypatch.setattr(Words, "add", added)
    site = Site(root, tmp_path / "cache" / "index.db", Journal(os.memfd_create("journal")))
    site.ask(1, None)
    while site.step():
        continue
    report = site.report()
    with closing(open_for_reading(tmp_path / "cache" / "index.db")) as db:
        states = dict(db.execute("SELECT path, state FROM files").fetchall())
    site.close()
    assert report["phase"] == "fresh" and site.answered() == [1]
    layer = "indexed" if fault is OSError else "crashed"
    assert states == {"good.py": "indexed", "other.py": "indexed", "parser.py": "crashed", "layer.py": layer}


SERVER = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tools.index import Index
from tools.sandbox.policy import SandboxPolicy
from tools.workspace import Workspace

async def main():
    index = Index.of(Workspace(Path(sys.argv[2]), SandboxPolicy(), cache=Path(sys.argv[3])))
    await index.refresh(timeout_s=float(sys.argv[4]))
    print(index.indexer.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.parametrize("patience", ["30", "0.2"], ids=["idle", "amid its work"])
async def test_the_child_dies_with_a_killed_server(root: Path, tmp_path: Path, patience: str) -> None:
    for number in range(1500 if patience == "0.2" else 10):
        (root / f"f{number}.py").write_text(f"def f{number}(): return [1, 2, 3]\n" * 100)
    command = [sys.executable, "-P", "-c", SERVER, str(ROOT), str(root), str(tmp_path / "cache"), patience]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        child = int(server.stdout.readline())
        assert not gone(child)
        server.kill()
        server.wait()
        await until_gone(child)


async def test_an_index_that_keeps_dying_is_given_up_for_a_while(root: Path, indexed: Indexed) -> None:
    for number in range(3000):
        (root / f"f{number}.py").write_text(f"def f{number}(): pass\n" * 20)
    index = indexed(root)
    waiting = asyncio.create_task(index.ready(PATIENT))
    while not waiting.done():
        if (pid := index.indexer.pid) is not None:
            os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.02)
    state = await waiting
    assert state.phase == "unavailable" and "died" in state.message
    assert "no index" in state.notes()[0]


async def test_parsing_a_text_that_is_too_large_or_unknown_says_nothing(root: Path, indexed: Indexed) -> None:
    index: Index = indexed(root)
    assert await index.parse("a.py", b"x" * (MAX_BYTES + 1)) is None
    assert await index.parse("a.unknown", b"x") is None
    parsed = await index.parse("a.py", b"def f(:\n  pass\n", PATIENT)
    assert parsed is not None and parsed.errors > 0


def test_shell_scripts_of_any_characters_are_parsed() -> None:
    """The grammar's scanner reads beyond its tables where a character is not ASCII."""
    source = random.Random(7)
    letters = " \n\t;&|<>(){}[]$`'\"\\#!*?~=-/.abrm012Ex" + "\u00e9\u4e2d\U0001f600\U0010ffff\U000aaaaa" * 6
    for _ in range(3000):
        text = "".join(source.choice(letters) for _ in range(source.randrange(1, 40)))
        parse("bash", text.encode())
    parsed, _ = parse("bash", "gr\u00fc\u00dfe() {\n  echo hallo\n}\n".encode())
    assert [symbol.name for symbol in parsed.symbols] == ["gr\u00fc\u00dfe"]
