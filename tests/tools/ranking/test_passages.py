"""The passage of a text in which a question's terms come together."""

from hypothesis import given
from hypothesis import strategies as st

from tools.ranking.passages import best_passage

RARITY = {"header": 3.0, "pars": 2.0, "messag": 1.0}


def test_the_passage_where_terms_meet() -> None:
    lines = ["filler"] * 100
    lines[9] = "a header"
    lines[60] = "messages"
    lines[64] = "HeaderParser parses a header"
    lines[70] = "message"
    found = best_passage("\n".join(lines), RARITY)
    assert found is not None
    assert (found.first, found.last, found.line) == (61, 71, 65)
    assert found.best[0] == 65 and set(found.best) == {61, 65, 71}


def test_no_term_no_passage() -> None:
    assert best_passage("nothing here", RARITY) is None
    assert best_passage("", RARITY) is None
    assert best_passage("header", {}) is None


def test_one_line_that_is_very_long() -> None:
    found = best_passage("header " * 200_000, RARITY)
    assert found is not None and (found.first, found.last) == (1, 1)


@given(st.lists(st.sampled_from(["header", "parse", "x", "message header", "", "HeaderParse"]), max_size=120))
def test_the_span_lies_in_the_text_and_in_the_window(lines: list[str]) -> None:
    found = best_passage("\n".join(lines), RARITY, window=7)
    hits = [number for number, line in enumerate(lines, 1) if line not in ("x", "")]
    assert (found is None) == (not hits)
    if found is not None:
        assert found.first in hits and found.last in hits
        assert 0 <= found.last - found.first < 7
        assert all(found.first <= line <= found.last for line in found.best)
