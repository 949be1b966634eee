"""Signatures of literals, and grep with the index: the answers are those without it."""

import os
import random
import re
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.calling import call, workspace
from tests.support.literals import literals, same
from tools import grep as grep_module
from tools.errors import InvalidArguments
from tools.grep import Grep
from tools.index import Index, views
from tools.index.literal import may_hold, signature, trigrams
from tools.index.slab import Slab, mapped, version_of
from tools.workspace import Workspace


def holds(data: bytes, literal: bytes) -> bool:
    bits, power = signature(data)
    assert len(bits) == (1 << power) // 8
    return bool(may_hold(bits, np.array([0]), np.array([power]), literal)[0])


@given(st.binary(max_size=2000), st.data())
def test_what_is_in_a_file_is_never_ruled_out(data: bytes, more: st.DataObject) -> None:
    start = more.draw(st.integers(0, len(data)))
    literal = data[start : more.draw(st.integers(start, len(data)))]
    assert holds(data, literal)
    assert holds(data, literal.upper()) and holds(data, literal.lower())


def test_most_of_what_is_not_there_is_ruled_out() -> None:
    chance = random.Random(1)
    for size in (300, 10_000, 900_000):
        data = bytes(chance.choices(b"abcdefghijklmnopqrstuvwxyz_ ()\n", k=size))
        absent = [text for _ in range(400) if (text := bytes(chance.choices(b"ABCXYZ019", k=6))) not in data]
        wrong = sum(holds(data, text.lower().replace(b"0", b"#").replace(b"9", b"%")) for text in absent)
        assert wrong <= len(absent) * 0.1, (size, wrong)


def test_texts_shorter_than_three_bytes_have_no_trigram() -> None:
    assert len(trigrams(b"ab")) == 0 and holds(b"", b"") and holds(b"xyz", b"ab")
    assert not holds(b"", b"abc")


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Workspace]:
    root = tmp_path / "work"
    files: dict[str, bytes] = {
        "src/app.py": b"import os\n\ndef stats(value):\n    return value\n\nprint(stats(1))\n",
        "src/crlf.py": b"first stats\r\nsecond\r\n",
        "src/last.txt": b"no end of line: stats",
        "docs/readme.md": "über stats, größer\n".encode(),
        "docs/kelvin.md": "\u212aelvin and s\u017ftem\n".encode(),
        "latin.txt": b"caf\xe9 stats\n",
        "marked.txt": b"\xef\xbb\xbfstats at once\nand stats again\n",
        "wide.txt": b"\xff\xfe" + "stats in two bytes\n".encode("utf-16-le"),
        "program": b"stats\n" + b"\0" * 100,
        "large.log": b"some line of a log\n" * 60_000 + b"stats at the end\n",
        "bundle.js": b"x" * 9000 + b"stats" + b"y" * 9000,
        ".gitignore": b"build/\n*.tmp\n",
        ".git/HEAD": b"stats\n",
        "build/out.txt": b"stats\n",
        "a.tmp": b"stats\n",
        os.fsdecode(b"na\xefve.txt"): b"stats\n",
    }
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    made = workspace(root)
    made.cache = tmp_path / "cache"
    made.cache.mkdir()
    assert (await Index.of(made).ready(60)).complete
    yield made
    await made.close()


@pytest.fixture
def ripgrep_runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each time ripgrep was asked."""
    runs: list[int] = []
    collect = grep_module._collect

    async def counted(*arguments):
        runs.append(1)
        await collect(*arguments)

    monkeypatch.setattr(grep_module, "_collect", counted)
    return runs


@pytest.mark.parametrize(
    "arguments",
    [
        {"pattern": "stats"},
        {"pattern": "stats", "context": 1},
        {"pattern": "stats", "context": 3, "path": "src"},
        {"pattern": r"stats\(1\)"},
        {"pattern": r"def \w+\("},
        {"pattern": "STATS", "ignore_case": True},
        {"pattern": "kelvin", "ignore_case": True},
        {"pattern": "system", "ignore_case": True},
        {"pattern": "größer"},
        {"pattern": "caf", "context": 1},
        {"pattern": "café"},
        {"pattern": "two bytes"},
        {"pattern": "the end"},
        {"pattern": "xstatsy"},
        {"pattern": "absent_from_all"},
        {"pattern": "stats", "path": "build"},
        {"pattern": "stats", "path": "docs"},
        {"pattern": "stats", "path": "src/app.py"},
        {"pattern": "stats", "glob": "*.md"},
        {"pattern": "stats", "glob": "!*.md"},
        {"pattern": "stats|value"},
        {"pattern": r"first stats$"},
        {"pattern": r"value\):\n    return"},
        {"pattern": "st"},
    ],
)
async def test_the_index_changes_no_answer(place: Workspace, arguments: dict[str, Any]) -> None:
    assert await same(place, **arguments) is True


async def test_a_literal_is_found_without_another_process(place: Workspace, ripgrep_runs: list[int]) -> None:
    assert (await call(Grep(), place, pattern="import os")).text == "src/app.py\n1:import os\n(1 match)"
    assert len(ripgrep_runs) == 1  # for the large file and the one in two bytes
    ripgrep_runs.clear()
    assert "src/app.py" in (await call(Grep(), place, pattern="import os", path="src")).text
    assert ripgrep_runs == []


async def test_what_changed_a_moment_ago_is_found(place: Workspace, ripgrep_runs: list[int]) -> None:
    root = place.root
    (root / "src" / "new.py").write_text("brand_new_name = 1\n")
    (root / "src" / "app.py").write_text("os_is_gone = brand_new_name\n")
    (root / "src" / "last.txt").unlink()
    found = await call(Grep(), place, pattern="brand_new_name", path="src")
    assert found.text == (
        "src/app.py\n1:os_is_gone = brand_new_name\nsrc/new.py\n1:brand_new_name = 1\n(2 matches)"
    )
    assert "(no match)" in (await call(Grep(), place, pattern="end of line", path="src")).text
    assert ripgrep_runs == []
    (root / ".gitignore").write_text("src/new.py\n")
    assert await same(place, "brand_new_name") is True
    (root / "src").rename(root / "moved")
    assert "moved/app.py" in (await call(Grep(), place, pattern="brand_new_name")).text


async def test_a_wrong_expression_is_refused_although_no_file_can_match(place: Workspace) -> None:
    with pytest.raises(InvalidArguments, match="not valid"):
        await call(Grep(), place, pattern="nowhere_at_all[b-a]")


async def test_limits_are_the_same(place: Workspace) -> None:
    for number in range(40):
        (place.root / f"many{number}.txt").write_text("needle here\n" * 30)
    result = await call(Grep(), place, pattern="needle here", limit=50)
    assert result.data["matches"] == 50 and result.data["incomplete"] is True
    assert "incomplete: first 50 matches" in result.text
    (place.root / "wide_lines.txt").write_text(("thread " + "z" * 300 + "\n") * 1000)
    assert "first 49 kB" in (await call(Grep(), place, pattern="thread zzz", limit=1000)).text


async def test_a_file_swapped_for_a_link_shows_nothing(place: Workspace, tmp_path: Path, monkeypatch) -> None:
    outside = tmp_path / "outside.py"
    outside.write_text("import os  # outside\n")
    looked = grep_module.candidates

    async def swapped(*arguments):
        found = await looked(*arguments)
        (place.root / "src" / "app.py").unlink()
        (place.root / "src" / "app.py").symlink_to(outside)
        return found

    monkeypatch.setattr(grep_module, "candidates", swapped)
    assert "outside" not in (await call(Grep(), place, pattern="import os", path="src")).text


async def test_random_literals_in_real_sources(tmp_path: Path) -> None:
    """Our own tools as the tree to search."""
    root = tmp_path / "work"
    texts: dict[str, str] = {}
    for path in sorted((Path(__file__).parents[3] / "tools").rglob("*.py")):
        name = path.relative_to(Path(__file__).parents[3]).as_posix()
        texts[name] = path.read_text()
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(texts[name])
    made = workspace(root)
    try:
        assert (await Index.of(made).ready(60)).complete
        chance = random.Random(11)
        compared = 0
        for text in literals(texts, chance, 60):
            answer = await same(
                made, re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text), context=chance.choice([None, 2])
            )
            assert answer is not False, text
            compared += answer is True
        assert compared > 30
    finally:
        await made.close()


def test_a_slab_is_rewritten_when_most_of_it_is_waste(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("tools.index.slab.WASTE", 100)
    db = sqlite3.connect(tmp_path / "index.db", isolation_level=None)
    slab, other = Slab(db, tmp_path, "name"), Slab(db, tmp_path, "name")
    slab.create()
    first = slab.append(b"a" * 200)
    slab.commit()
    kept = other.append(b"b" * 50)  # another process
    other.commit()
    assert (first, kept) == (0, 200) and slab.wasteful(alive=50)
    file, version = version_of(db, "name")
    old = mapped(tmp_path, file)
    moved: list[int] = []
    slab.rewrite(lambda data: moved.append(slab.append(bytes(data[kept : kept + 50]))))
    slab.commit()
    assert moved == [0] and not slab.wasteful(alive=50)
    renamed, later = version_of(db, "name")
    assert renamed != file and later == version + 1
    assert bytes(mapped(tmp_path, renamed)) == b"b" * 50
    assert bytes(old[kept : kept + 50]) == b"b" * 50  # whoever has it still reads it
    assert other.append(b"c") == 50
    slab.commit()
    assert [path.name for path in tmp_path.glob("*.slab")] == [renamed]
    (tmp_path / renamed).unlink()
    slab.close()
    with pytest.raises(sqlite3.DatabaseError):
        slab.append(b"d")
    other.close()
    db.close()


async def test_a_lost_slab_is_made_anew(place: Workspace) -> None:
    index = Index.of(place)
    for slab in index.database.parent.glob("*.slab"):
        slab.unlink()
    index.views.clear()
    assert await same(place, "import os") is True  # by ripgrep alone
    (place.root / "src" / "more.py").write_text("import os\n")
    assert await same(place, "import os") is True
    assert (await index.ready(60)).complete
    with views.reading(index) as db:
        assert views.signatures(index, db).holding([b"import os"])


@pytest.mark.budget
async def test_a_literal_in_4000_files_takes_at_most_15_ms(tmp_path: Path) -> None:
    """The 95th percentile of queries, each the least of three, in process time."""
    root = tmp_path / "work"
    chance = random.Random(3)
    vocabulary = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz_", k=9)) for _ in range(9000)]
    texts: dict[str, str] = {}
    for number in range(4000):
        name = f"d{number % 80}/f{number}.txt"
        texts[name] = "\n".join(" ".join(chance.choices(vocabulary, k=8)) for _ in range(40))
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(texts[name])
    place = workspace(root)
    try:
        assert (await Index.of(place).ready(100)).complete
        took: list[float] = []
        for text in literals(texts, chance, 100):
            least = float("inf")
            for _ in range(3):
                began = time.process_time()
                await call(Grep(), place, pattern=re.escape(text).replace(r"\ ", " "))
                least = min(least, time.process_time() - began)
            took.append(least)
        took.sort()
        assert took[94] < 0.015, f"{took[94] * 1000:.1f} ms"
    finally:
        await place.close()
