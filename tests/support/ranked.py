"""How well a search finds the files that mined questions ask for, and how well plain BM25 does."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.support.mined import Mined

DEPTH = 50
"""Files of an answer that count; what is not among them has not been found."""

PATTERN, SATURATION, LENGTH = r"[^\W_]{2,}", 4.0, 0.95
"""With stemming, the best of 36 settings of BM25 on the package that ranking is tuned on: words or parts of
words, stemmed or not, nine pairs of k1 and b. The usual ones (whole words, 1.5, 0.75) find less there."""


@dataclass(frozen=True)
class Quality:
    """The share of questions whose file is among the first five, and the mean reciprocal rank."""

    recall: float
    reciprocal: float


def quality(mined: Mined, answers: Sequence[Sequence[str]]) -> Quality:
    ranks = [
        list(answer).index(path) + 1 if path in answer else None
        for (_, path), answer in zip(mined.pairs, answers, strict=True)
    ]
    return Quality(
        sum(rank is not None and rank <= 5 for rank in ranks) / len(ranks),
        sum(1 / rank for rank in ranks if rank) / len(ranks),
    )


def plain_bm25(mined: Mined, prior: Callable[[str], float] | None = None) -> list[list[str]]:
    """What a library's BM25 over whole files answers; with `prior`, scores are multiplied with it."""
    import bm25s
    import numpy as np
    import Stemmer

    paths = list(mined.texts)
    stemmer = Stemmer.Stemmer("english")
    settings = {"token_pattern": PATTERN, "stopwords": "en", "stemmer": stemmer, "show_progress": False}
    model = bm25s.BM25(k1=SATURATION, b=LENGTH)
    model.index(bm25s.tokenize(list(mined.texts.values()), **settings), show_progress=False)
    asked = bm25s.tokenize([question for question, _ in mined.pairs], return_ids=False, **settings)
    factors = np.array([prior(path) if prior is not None else 1.0 for path in paths])
    answers: list[list[str]] = []
    for tokens in asked:
        scores = model.get_scores([str(token) for token in tokens]) * factors
        answers.append([paths[one] for one in np.argsort(-scores, kind="stable")[:DEPTH]])
    return answers
