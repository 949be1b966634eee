"""Literals read off an expression: none that a match could lack."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.patterns import needed


@pytest.mark.parametrize(
    ("pattern", "literals", "exact"),
    [
        ("stats", ["stats"], True),
        (r"foo\(bar\)", ["foo(bar)"], True),
        (r"def \w+\(self", ["def ", "(self"], False),
        (r"abcd*", ["abc"], False),
        (r"abc+d", ["abc"], False),
        (r"abc??def", ["def"], False),
        (r"x{2,3}abc", ["abc"], False),
        (r"(abc)?def", ["def"], False),
        (r"[abc]def[^]x]ghi", ["def", "ghi"], False),
        (r"\bclass\s+Foo\b", ["class", "Foo"], False),
        (r"^import os$", ["import os"], False),
        ("été", ["été"], True),
        ("ab", [], False),
        ("foo|bar", [], False),
        ("(?i)stats", [], False),
        ("(?:stats", [], False),
        (r"stats\nmore", [], False),
        ("stats\nmore", [], False),
        ("stats\rmore", [], False),
        (r"stats\d", ["stats"], False),
        (r"\x41stats", [], False),
        (r"\pLstats", [], False),
        ("stats{", [], False),
        ("stats)", [], False),
        ("[[:alpha:]]stats", [], False),
        (r"[a&&b]stats", [], False),
        ("stats\\", [], False),
        ("stat\udc80", [], False),
        ("a**stats", [], False),
    ],
)
def test_what_an_expression_needs(pattern: str, literals: list[str], exact: bool) -> None:
    found = needed(pattern)
    assert [literal.decode() for literal in found.literals] == literals
    assert found.exact is exact


def test_letters_with_another_case_beyond_ascii_are_not_needed() -> None:
    """K and S have one: the Kelvin sign and the long s match them where case is ignored."""
    assert needed("basket", ignore_case=True).literals == ()
    assert needed("Header", ignore_case=True).literals == (b"Header",)
    assert needed("größer", ignore_case=True).literals == ()
    assert not needed("Header", ignore_case=True).exact


_PIECES = r"a b ab abc ba \. . * + ? ( (?: ) | [ab] [^a] \w \b ^ $ {2} {1,2}"
PIECES = st.sampled_from(_PIECES.split())


@settings(max_examples=600)
@given(st.lists(PIECES, min_size=1, max_size=10), st.lists(st.text("abc. ", max_size=12), max_size=8))
def test_every_match_holds_what_is_needed(pieces: list[str], texts: list[str]) -> None:
    pattern = "".join(pieces)
    try:
        expression = re.compile(pattern)
    except re.error:
        return
    found = needed(pattern)
    for text in texts:
        if expression.search(text):
            assert all(literal.decode() in text for literal in found.literals), (pattern, text)
        elif found.exact:
            assert found.literals[0].decode() not in text
