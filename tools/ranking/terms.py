"""What a text is about: stemmed words, also those that are parts of identifiers."""

import re
import struct
import unicodedata
from collections import Counter
from functools import lru_cache
from typing import Final
from zlib import crc32

import numpy as np
import Stemmer
from numpy.typing import NDArray

LONGEST: Final = 64
"""Characters of a word; a longer one (encoded data) is no word."""
REMEMBERED: Final = 200_000
"""Words whose terms are remembered."""

_WORD: Final = re.compile(r"\w+")
_PART: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_UNSPACED: Final = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]+"
)
"""Scripts that are written without spaces between words, or inflect by long endings (Hangul)."""

_HASH: Final = struct.Struct("=I")
_SPACED: Final = bytes(
    code if chr(code).isalnum() or code == ord("_") else ord(" ") for code in range(128)
) + (bytes(range(128, 256)))
"""What is no letter of a word becomes a space."""

_COMMON: Final = """
a an and are as at be been but by can could did do does each for from had has have how if in
into is it its may must no nor not of on only or other our out shall should so some such than
that the their them then there these they this those to was we were what when where which while
who whose why will with would you your
"""
COMMON: Final = frozenset(_COMMON.split())
"""Words that say nothing about what a text is about."""

_stemmer: Final = Stemmer.Stemmer("english", 0)
"""Without a cache of its own: `terms_of` has one."""


@lru_cache(maxsize=1 << 14)
def terms_of(word: str) -> tuple[str, ...]:
    """The terms of one word or identifier: its parts, stemmed, and the whole where it has several."""
    if len(word) > LONGEST:
        return ()
    if not word.isascii():
        return _foreign(word)
    parts = [part.lower() for part in _PART.findall(word)]
    terms = [_stemmer.stemWord(part) for part in parts if len(part) > 1 and part not in COMMON]
    if len(parts) > 1:
        terms.append(word.lower().strip("_"))
    return tuple(terms)


def counted(text: str) -> Counter[str]:
    """How often each term occurs in a text."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    terms: Counter[str] = Counter()
    for word, count in Counter(_WORD.findall(text)).items():
        for term in terms_of(word):
            terms[term] += count
    return terms


def hash_of(term: str) -> int:
    """32 bits that stand for a term in an index."""
    return crc32(term.encode("utf-8", "surrogatepass"))


class Memory(dict[bytes, bytes]):
    """The hashes of the terms of each word met so far (uint32, one after the other): a dictionary is the
    quickest cache there is. Words are UTF-8. For one thread."""

    def __init__(self) -> None:
        self._parts = _Parts()

    def __missing__(self, word: bytes) -> bytes:
        if len(self) >= REMEMBERED:
            self.clear()
            self._parts.clear()
        self[word] = hashes = self._of(word.decode("utf-8", "surrogatepass"))
        return hashes

    def _of(self, word: str) -> bytes:
        if len(word) > LONGEST:
            return b""
        if not word.isascii():
            return b"".join(_packed(term) for term in _foreign(word))
        parts = _PART.findall(word)
        if len(parts) < 2:
            return self._parts[parts[0]] if parts else b""
        whole = _packed(word.lower().strip("_"))
        return b"".join(map(self._parts.__getitem__, parts)) + whole


class _Parts(dict[str, bytes]):
    """The same for parts of words; none of what says nothing."""

    def __missing__(self, part: str) -> bytes:
        plain = part.lower()
        says = len(plain) > 1 and plain not in COMMON
        self[part] = packed = _packed(_stemmer.stemWord(plain)) if says else b""
        return packed


def _packed(term: str) -> bytes:
    return _HASH.pack(hash_of(term))


def occurring(text: str | bytes, known: Memory) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """As `counted`, for an index: hashes of terms, and how often each occurs; one may come several times.
    Bytes are UTF-8."""
    if text.isascii():
        # Far quicker than an expression, and the same for ASCII.
        plain = text.encode() if isinstance(text, str) else text
        words = Counter(plain.translate(_SPACED).split())
    else:
        plain = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        found = Counter(_WORD.findall(unicodedata.normalize("NFKC", plain)))
        words = {word.encode("utf-8", "surrogatepass"): count for word, count in found.items()}
    pieces = list(map(known.__getitem__, words))
    hashes = np.frombuffer(b"".join(pieces), np.uint32)
    sizes = np.fromiter(map(len, pieces), np.int64, len(pieces)) >> 2
    return hashes, np.repeat(np.fromiter(words.values(), np.int64, len(words)), sizes)


def hashed(text: str | bytes, known: Memory) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """As `occurring`, each hash once, sorted."""
    return added_up(*occurring(text, known))


def added_up(
    hashes: NDArray[np.uint32], counts: NDArray[np.int64]
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Each hash once, sorted, with the sum of its counts."""
    if not len(hashes):
        return hashes, counts
    order = np.argsort(hashes)
    hashes, counts = hashes[order], counts[order]
    first = np.flatnonzero(np.concatenate(([True], hashes[1:] != hashes[:-1])))
    return hashes[first], np.add.reduceat(counts, first)


def _foreign(word: str) -> tuple[str, ...]:
    """Words of other scripts: case is folded; what is written without spaces becomes pairs of characters."""
    terms: list[str] = []
    for part in word.casefold().split("_"):
        at = 0
        for run in _UNSPACED.finditer(part):
            terms += _whole(part[at : run.start()])
            text, at = run.group(), run.end()
            terms += [text] if len(text) == 1 else [text[i : i + 2] for i in range(len(text) - 1)]
        terms += _whole(part[at:])
    return tuple(terms)


def _whole(part: str) -> list[str]:
    if len(part) < 2 or part in COMMON:
        return []
    return [_stemmer.stemWord(part)] if part.isascii() else [part]
