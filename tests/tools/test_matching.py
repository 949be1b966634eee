"""Finding a place: tiers against plain definitions, and every one only where it is unique."""

import random

import pytest

from tools.anchors import BadAnchor, anchored
from tools.indentation import shift_between
from tools.matching import Window, allowance, find, fold, within


def distance(one: str, other: str) -> int:
    """Levenshtein, the textbook table."""
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, 1):
        previous, row = row, [i]
        for j, right in enumerate(other, 1):
            row.append(min(previous[j] + 1, row[-1] + 1, previous[j - 1] + (left != right)))
    return row[-1]


def test_the_bounded_edit_distance_is_the_edit_distance() -> None:
    chance = random.Random(11)
    for _ in range(4000):
        one = "".join(chance.choice("abc") for _ in range(chance.randrange(0, 14)))
        other = list(one)
        for _ in range(chance.randrange(0, 5)):
            at = chance.randrange(0, len(other) + 1)
            other[at : at + chance.randrange(0, 2)] = chance.choice(["", "a", "b", "c"])
        text = "".join(other)
        for limit in range(5):
            assert within(one, text, limit) == (distance(one, text) <= limit), (one, text, limit)


@pytest.mark.parametrize("length", [1, 9, 10, 19, 20, 100])
def test_the_allowance_keeps_nine_tenths(length: int) -> None:
    edits = allowance("x" * length, "y")
    assert 1 - edits / length >= 0.9 - 1e-9
    assert 1 - (edits + 1) / length < 0.9


def test_similar_lines_are_all_found_wherever_the_edits_are() -> None:
    """No similar line is missed by looking only where an untouched piece is."""
    chance = random.Random(5)
    alphabet = "abcdefghijklmnopqrstuvwxyz_().,= "
    for _ in range(300):
        line = "".join(chance.choice(alphabet) for _ in range(chance.randrange(12, 70))).strip()
        near = list(line)
        for _ in range(allowance(line, line)):
            near[chance.randrange(1, len(near) - 1)] = chance.choice(alphabet)
        noise = ["".join(chance.choice(alphabet) for _ in range(40)) for _ in range(20)]
        noise.insert(chance.randrange(20), "".join(near))
        flat = "\n".join(noise) + "\n"
        found = find(flat, line, Window(0, len(flat)))
        assert len(found.matches) == 1, (line, "".join(near), found)
        assert flat[found.matches[0].start : found.matches[0].end] == "".join(near)


def test_a_match_lies_inside_its_window() -> None:
    flat = "two\none\ntwo\nthree\ntwo\n"
    assert [match.start for match in find(flat, "two", Window(4, 18)).matches] == [8]
    assert find(flat, "two\nthree", Window(4, 12)).matches == ()


def test_only_exact_uses_no_tolerance() -> None:
    flat = "    two  \n"
    assert find(flat, "    two\n", Window(0, len(flat))).tier == "trailing-space"
    assert find(flat, "    two\n", Window(0, len(flat)), only_exact=True).matches == ()


def test_folding_is_one_character_for_one() -> None:
    text = "“a” ‘b’ – — − \u00a0\u2003\u3000 « » …"
    assert fold(text) == '"a" \'b\' - - -     " " …'
    assert len(fold(text)) == len(text)


def test_a_search_in_a_file_of_equal_lines_ends_soon() -> None:
    flat = "}\n" * 200_000
    assert len(find(flat, "}\n", Window(0, len(flat))).matches) == 100
    assert find(flat, "}  \n} \n", Window(0, len(flat))).matches == ()


@pytest.mark.parametrize(
    ("written", "found", "line", "shifted"),
    [
        (["a"], ["    a"], "    b", "        b"),
        (["    a"], ["a"], "        b", "    b"),
        (["    a"], ["a"], "b", None),
        (["a", "    b"], ["\ta", "\t\tb"], "        c", "\t\t\tc"),
        (["\ta", "\t\tb"], ["  a", "    b"], "\t\t\tc", "      c"),
        (["    a"], ["\t\ta"], "        b", "\t\t\tb"),
        (["  a", "    b"], ["\ta", "\t\tb"], "      c", "\t\t\tc"),
        (["a"], ["    a"], "", ""),
        (["a"], ["\t a"], "b", "\t b"),
    ],
)
def test_shifting_indentation(written: list[str], found: list[str], line: str, shifted: str | None) -> None:
    shift = shift_between(written, found, "\n".join(found), [line])
    assert shift is not None
    assert shift.apply(line) == shifted


def test_an_indentation_that_is_not_uniform_is_no_shift() -> None:
    assert shift_between(["a", "b"], ["  a", "    b"], "") is None
    assert shift_between(["a", "", "b"], ["  a", "", "  b"], "") is not None


CODE = """\
import os

# Fetches.
@cached
def fetch(url):
    one = 1

    return one


class Store:
    def get(self):
        pass

    def put(
        self,
    ):
        pass
"""


@pytest.mark.case("edit-4")
@pytest.mark.parametrize(
    ("anchor", "first", "last"),
    [
        ("def fetch(url):", "# Fetches.", "    return one"),
        ("def fetch", "# Fetches.", "    return one"),
        ("class Store:", "class Store:", "        pass"),
        ("class Store", "class Store:", "        pass"),
        ("class Store:\n    def get(self):", "    def get(self):", "        pass"),
        ("def put(", "    def put(", "        pass"),
        ("one = 1", "def fetch(url):", "    return one"),
        ("import os", "import os", "        pass"),
    ],
)
def test_the_block_of_an_anchor(anchor: str, first: str, last: str) -> None:
    window = anchored(CODE, anchor).window
    lines = CODE[window.start : window.end].rstrip("\n").split("\n")
    assert (lines[0], lines[-1]) == (first, last)


@pytest.mark.parametrize("anchor", ["", "  \n ", "def absent", "pass", "class Store:\nimport os"])
def test_anchors_that_name_no_line_or_several(anchor: str) -> None:
    with pytest.raises(BadAnchor):
        anchored(CODE, anchor)


def test_a_heading_opens_its_section() -> None:
    page = "# A\ntext\n## B\nb\n### C\nc\n## D\nd\n"
    window = anchored(page, "## B").window
    assert page[window.start : window.end] == "## B\nb\n### C\nc\n"
