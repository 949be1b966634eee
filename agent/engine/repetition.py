"""Notices when a small model has fallen into a loop."""

from collections.abc import Sequence
from typing import Final

LONGEST: Final = 48
"""Ids of the longest unit whose repetition is noticed."""
LEAST: Final = 24
"""Ids that the repetitions must have together: short ones (rows of dashes) may be meant."""


def is_looping(ids: Sequence[int]) -> bool:
    """Whether `ids` end in one unit of at most `LONGEST` ids, written three times or more in a row."""
    for size in range(1, LONGEST + 1):
        times = max(3, -(-LEAST // size))
        if len(ids) < size * times:
            continue
        unit = ids[-size:]
        if all(ids[-size * (n + 1) : -size * n] == unit for n in range(1, times)):
            return True
    return False
