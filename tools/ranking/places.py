"""The files of a workspace that answer a question best, by the index and by texts that are newer than it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tools.index import views
from tools.index.schema import stored_path
from tools.ranking.corpus import Corpus, packed
from tools.ranking.prior import prior
from tools.ranking.terms import Memory, counted, hashed

if TYPE_CHECKING:
    import sqlite3

    from tools.index import Index

MOST_TERMS: Final = 40
"""Terms of a question that count; of more, the most frequent and then the longest."""
EMPHASIS: Final = 3
"""How often a word of a question may count at most."""
CLEAR: Final = 0.25
"""Files with less than this share of the best score are not worth showing."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """`files` are paths and scores, best first. `rarity` is of the terms that occur, `absent` the others."""

    files: list[tuple[str, float]]
    rarity: dict[str, float]
    absent: list[str]


def question_of(text: str) -> dict[str, int]:
    """The terms a question asks for, with the weight of each; none where it has no words of its own."""
    terms = counted(text)
    chosen = sorted(terms, key=lambda term: (-terms[term], -len(term), term))[:MOST_TERMS]
    return {term: min(terms[term], EMPHASIS) for term in chosen}


def ranked(
    index: "Index",
    question: Mapping[str, int],
    folder: str = ".",
    newer: Mapping[str, str] | None = None,
    most: int = 20,
) -> Ranked:
    """The files below a folder that answer best. `newer` are texts by path that stand for what is on disk.

    Raises:
        EnvironmentFault: there is no index (yet).
    """
    newer = {path: text for path, text in (newer or {}).items() if _is_below(path, folder)}
    with views.reading(index) as db:
        terms = views.terms(index, db)
        scores, rarity = terms.corpus.scores(question)
        scores *= terms.priors
        if folder != ".":
            scores[~np.isin(terms.ids, _rows_below(db, folder))] = 0.0
        if newer:
            scores[np.isin(terms.ids, _rows_of(db, newer))] = 0.0
        best = np.argsort(-scores, kind="stable")[:most]
        best = best[scores[best] > 0]
        paths = views.paths_of(db, terms.ids[best].tolist())
        files = [(paths[int(terms.ids[one])], float(scores[one])) for one in best]
    if newer:
        found, more = _of_texts(newer, question, terms.corpus)
        rarity = {**more, **rarity}
        files += found
    files.sort(key=lambda one: (-one[1], one[0]))
    clear = [one for one in files if one[1] >= CLEAR * files[0][1]]
    return Ranked(clear[:most], rarity, [term for term in question if term not in rarity])


def _of_texts(
    texts: Mapping[str, str], question: Mapping[str, int], among: Corpus
) -> tuple[list[tuple[str, float]], dict[str, float]]:
    known = Memory()
    nothing = hashed("", known)
    files = [packed(hashed(text, known), nothing, hashed(path, known)) for path, text in texts.items()]
    scores, rarity = Corpus.of(files).scores(question, among)
    return [
        (path, float(score) * prior(path)) for path, score in zip(texts, scores, strict=True) if score > 0
    ], rarity


def _is_below(path: str, folder: str) -> bool:
    return folder in (".", path) or path.startswith(f"{folder}/")


def _rows_below(db: "sqlite3.Connection", folder: str) -> list[int]:
    """Rows of a file, or of all files in a folder."""
    whole, first, last = stored_path(folder), stored_path(f"{folder}/"), stored_path(f"{folder}0")
    query = "SELECT id FROM files WHERE path = ? OR (path >= ? AND path < ?)"
    return [row[0] for row in db.execute(query, (whole, first, last))]


def _rows_of(db: "sqlite3.Connection", paths: Iterable[str]) -> list[int]:
    rows: list[int] = []
    for path in paths:
        rows += [row[0] for row in db.execute("SELECT id FROM files WHERE path = ?", (stored_path(path),))]
    return rows
