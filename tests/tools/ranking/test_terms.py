"""Terms: stems, parts of identifiers, other scripts, nonsense."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.ranking.terms import LONGEST, Memory, added_up, counted, hash_of, hashed, terms_of


@pytest.mark.parametrize(
    ("word", "terms"),
    [
        ("headers", ("header",)),
        ("HTTPResponseParser", ("http", "respons", "parser", "httpresponseparser")),
        ("get_user_name", ("get", "user", "name", "get_user_name")),
        ("__init__", ("init",)),
        ("utf8", ("utf", "utf8")),
        ("the", ()),
        ("x", ()),
        ("ÜBER_größe", ("über", "grösse")),
        ("検索する", ("検索", "索す", "する")),
        ("x" * (LONGEST + 1), ()),
    ],
)
def test_terms_of_a_word(word: str, terms: tuple[str, ...]) -> None:
    assert terms_of(word) == terms


def test_a_text_counts_every_word() -> None:
    assert counted("Parse headers; parsed HeaderParser") == {
        "pars": 2,
        "header": 2,
        "parser": 1,
        "headerparser": 1,
    }


@given(st.text())
def test_any_text_has_terms_and_its_hashes_are_those(text: str) -> None:
    terms = counted(text)
    expected: dict[int, int] = {}
    for term, count in terms.items():
        expected[hash_of(term)] = expected.get(hash_of(term), 0) + count
    hashes, counts = hashed(text, Memory())
    assert dict(zip(hashes.tolist(), counts.tolist(), strict=True)) == expected
    assert hashes.tolist() == sorted(set(hashes.tolist()))


def test_composed_and_decomposed_letters_are_the_same() -> None:
    assert counted("cafe\u0301") == counted("caf\u00e9")


def test_nothing_adds_up_to_nothing() -> None:
    hashes, counts = hashed("", Memory())
    assert len(added_up(hashes, counts)[0]) == 0
