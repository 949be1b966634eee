"""Unified diffs: applied by patch(1) they give the new file; their cost is bounded."""

import random
import subprocess
import time
from pathlib import Path

import pytest

from tools.diff import unified_diff


def lines_of(chance: random.Random) -> list[str]:
    pool = ["a", "b", "c", "", "}", "x\r", *map(str, range(20))]
    return [chance.choice(pool) for _ in range(chance.randrange(0, 40))]


def test_patch_turns_the_old_file_into_the_new_one(tmp_path: Path) -> None:
    chance = random.Random(3)
    file = tmp_path / "f"
    for _ in range(250):
        old = lines_of(chance)
        new = list(old)
        for _ in range(chance.randrange(0, 6)):
            at = chance.randrange(0, len(new) + 1)
            new[at : at + chance.randrange(0, 3)] = lines_of(chance)[: chance.randrange(0, 3)]
        before = ("\n".join(old) + "\n" * chance.randrange(0, 2)).encode()
        after = ("\n".join(new) + "\n" * chance.randrange(0, 2)).encode()
        text, added, removed = unified_diff(before, after, "f")
        assert (text == "") == (before == after)
        body = text.split("\n")[2:]
        assert added == sum(line.startswith("+") for line in body)
        assert removed == sum(line.startswith("-") for line in body)
        if text:
            file.write_bytes(before)
            done = subprocess.run(
                ["patch", "-s", "-u", "--binary", "f"], input=text.encode(), cwd=tmp_path, capture_output=True
            )
            assert done.returncode == 0, (before, after, text, done.stdout)
            assert (file.read_bytes() if file.exists() else b"") == after


def test_the_form() -> None:
    assert unified_diff(b"a\nb\nc\n", b"a\nB\nc\n", "d/f.py") == (
        "--- a/d/f.py\n+++ b/d/f.py\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n",
        1,
        1,
    )
    assert unified_diff(None, b"a\n", "f") == ("--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+a\n", 1, 0)
    assert unified_diff(b"a", None, "f") == (
        "--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n\\ No newline at end of file\n",
        0,
        1,
    )
    assert unified_diff(b"a\n", b"a\n", "f") == ("", 0, 0)
    assert unified_diff(b"\0", b"a", "f") == ("Binary file f differs (contains NUL bytes)\n", 0, 0)
    assert unified_diff(None, b"", "f") == ("--- /dev/null\n+++ b/f\n", 0, 0)


def test_other_encodings_are_shown_decoded() -> None:
    text, _, _ = unified_diff("café a\nx\n".encode("latin-1"), "café b\nx\n".encode("latin-1"), "f")
    assert "-café a\n+café b\n" in text
    text, added, removed = unified_diff(b"a\rb\rc\r", b"a\rB\rc\r", "f")
    assert (added, removed) == (1, 1) and "-b\n+B\n" in text


BIG = "".join(f"line {number} value\n" for number in range(20_000)).encode()
CHANCE = random.Random(1)
COSTLY = {
    "two distant changes": (BIG, BIG.replace(b"line 7 ", b"L ").replace(b"line 19000 ", b"Q "), 2),
    "every line": (BIG, BIG.replace(b"value", b"worth"), 20_000),
    "equal lines": (b"x\n" * 50_000, b"x\ny\n" * 30_000, None),
    "few distinct lines": (
        b"".join(b"%d\n" % CHANCE.randrange(200) for _ in range(20_000)),
        b"".join(b"%d\n" % CHANCE.randrange(200) for _ in range(20_000)),
        None,
    ),
    "one line": (b"x" * 5_000_000, b"x" * 4_999_999 + b"y", 1),
    "reversed": (BIG, b"".join(BIG.splitlines(keepends=True)[::-1]), None),
}


@pytest.mark.parametrize("name", COSTLY)
def test_the_cost_is_bounded(name: str) -> None:
    before, after, changed = COSTLY[name]
    began = time.process_time()
    _, added, removed = unified_diff(before, after, "f")
    assert time.process_time() - began < 2.0
    assert changed is None or added == removed == changed
    assert added - removed == after.count(b"\n") - before.count(b"\n")
