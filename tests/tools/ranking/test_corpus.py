"""BM25F on arrays: the same figures as the formula written out."""

import math
from collections.abc import Mapping

import numpy as np
import pytest

from tools.ranking import corpus as module
from tools.ranking.corpus import LENGTH, SATURATION, WEIGHTS, Corpus, Packed, packed
from tools.ranking.terms import Memory, counted, hashed

FILES = [
    (
        "parser.py",
        "HeaderParser parse",
        "class HeaderParser reads headers and parses the header of a message",
    ),
    ("mail/send.py", "send", "send a message over a connection, with headers"),
    ("docs/notes.txt", "", "notes about nothing in particular"),
]


def of(path: str, names: str, body: str) -> Packed:
    known = Memory()
    return packed(hashed(body, known), hashed(names, known), hashed(path, known))


def by_hand(question: Mapping[str, int]) -> list[float]:
    fields = [(counted(body), counted(names), counted(path)) for path, names, body in FILES]
    average = [sum(file[one].total() for file in fields) / len(fields) for one in range(3)]
    scores = []
    for file in fields:
        score = 0.0
        for term, weight in question.items():
            holding = sum(any(term in field for field in other) for other in fields)
            if not holding:
                continue
            frequency = sum(
                WEIGHTS[one]
                * file[one][term]
                / (1 - LENGTH[one] + LENGTH[one] * file[one].total() / average[one])
                for one in range(3)
            )
            idf = math.log(1 + (len(fields) - holding + 0.5) / (holding + 0.5))
            score += weight * idf * frequency * (SATURATION + 1) / (SATURATION + frequency)
        scores.append(score)
    return scores


def test_the_scores_are_those_of_the_formula() -> None:
    question = counted("how are headers of messages parsed, parsed how?")
    scores, rarity = Corpus.of([of(*file) for file in FILES]).scores(question)
    assert scores == pytest.approx(by_hand(question))
    assert int(np.argmax(scores)) == 0
    assert set(rarity) == {"header", "messag", "pars"}


def test_what_belongs_to_no_file_is_not_found() -> None:
    """A slab holds what is left of older files; only the blocks that are told count."""
    whole = Corpus.of([of(*file) for file in FILES])
    some = Corpus(whole.words, whole.halves, whole.starts[1:], whole.sizes[1:], whole.lengths[1:])
    alone = Corpus.of([of(*file) for file in FILES[1:]])
    question = counted("headers parser message notes")
    assert some.scores(question)[0] == pytest.approx(alone.scores(question)[0])
    backwards = Corpus(whole.words, whole.halves, whole.starts[::-1], whole.sizes[::-1], whole.lengths[::-1])
    assert backwards.scores(question)[0][::-1] == pytest.approx(whole.scores(question)[0])


def test_a_newer_text_is_weighed_among_the_others() -> None:
    whole = Corpus.of([of(*file) for file in FILES])
    question = counted("headers of a message")
    scores, _ = whole.scores(question)
    again, _ = Corpus.of([of(*FILES[1])]).scores(question, whole)
    assert again[0] == pytest.approx(scores[1])


def test_nothing_in_nothing() -> None:
    scores, rarity = Corpus.of([]).scores({"header": 1})
    assert len(scores) == 0 and rarity == {}
    scores, rarity = Corpus.of([of("", "", "")]).scores({"header": 1})
    assert scores.tolist() == [0.0] and rarity == {}
    scores, _ = Corpus.of([of(*FILES[0])]).scores({"header": 1}, Corpus.of([]))
    assert scores[0] > 0


def test_counts_are_clipped_not_wrapped() -> None:
    many = of("a.py", "name " * 100, "word " * 10_000)
    few = of("a.py", "name", "word")
    assert int(many.counts.max()) < 1 << 16
    scores, _ = Corpus.of([many, few, of("b", "", "other")]).scores({"word": 1, "name": 1})
    assert scores[0] > scores[2] == 0
    assert module._MOST.tolist() == [511, 31, 3]
