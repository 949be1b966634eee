"""Ranking finds what it is asked for, better than plain BM25, in a package that it was not tuned on."""

from pathlib import Path

from tests.support.calling import workspace
from tests.support.mined import mine
from tests.support.published import published_source
from tests.support.ranked import plain_bm25, quality
from tools.index import Index
from tools.ranking.places import question_of, ranked

PAIRS = "c996e271bb563bdb"


async def test_search_finds_more_than_plain_bm25(tmp_path: Path) -> None:
    """At least five points of recall@5; the questions are the same as ever."""
    mined = mine(published_source("scrapy", "2.12.0", tmp_path), seed=7, count=150)
    assert (len(mined.pairs), mined.digest) == (110, PAIRS)
    place = workspace(mined.root)
    try:
        index = Index.of(place)
        assert (await index.ready(60)).complete
        ours = quality(
            mined,
            [
                [path for path, _ in ranked(index, question_of(question), most=50).files]
                for question, _ in mined.pairs
            ],
        )
    finally:
        await place.close()
    plain = quality(mined, plain_bm25(mined))
    assert ours.recall >= plain.recall + 0.05, (ours, plain)
    assert ours.reciprocal > plain.reciprocal
