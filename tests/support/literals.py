"""Texts to grep for, taken from files at random, and whether the index changes what grep answers."""

import random
import re
from collections.abc import Mapping

from tests.support.calling import call
from tools.grep import Grep
from tools.workspace import Workspace

LIMIT = 1000


def literals(texts: Mapping[str, str], chance: random.Random, count: int) -> list[str]:
    """Words, and pieces of lines of 3 to 20 characters, half and half, of three bytes or more."""
    paths = sorted(texts)
    chosen: list[str] = []
    while len(chosen) < count:
        lines = [line for line in re.split(r"\r?\n", texts[chance.choice(paths)]) if len(line) > 8]
        if not lines:
            continue
        line = chance.choice(lines)
        if chance.random() < 0.5:
            words = re.findall(r"\w{3,}", line)
            text = chance.choice(words) if words else ""
        else:
            size = chance.randint(3, 20)
            start = chance.randrange(max(len(line) - size, 1))
            text = line[start : start + size]
        if len(text.encode()) >= 3 and text.isprintable():
            chosen.append(text)
    return chosen


async def same(place: Workspace, pattern: str, **arguments: object) -> bool | None:
    """Whether grep answers alike with and without the index; None where it stops at so many matches."""
    place.output_limit = 1 << 26
    with_index = await call(Grep(), place, pattern=pattern, limit=LIMIT, **arguments)
    index, place.index = place.index, None
    try:
        without = await call(Grep(), place, pattern=pattern, limit=LIMIT, **arguments)
    finally:
        place.index = index
    if with_index.data["incomplete"] or without.data["incomplete"]:
        return None
    return _plain(with_index.text) == _plain(without.text)


def _plain(text: str) -> str:
    # Binary files that hold the text are counted by ripgrep alone: the index does not look into them.
    return re.sub(r"; \d+ binary file left out", "", text).replace("(no match)", "")
