"""Loops are noticed, lists and rows of characters are not."""

import pytest

from agent.engine.repetition import is_looping


@pytest.mark.parametrize(
    ("ids", "looping"),
    [
        ([1, 2, 3, *[7, 8, 9, 10, 11, 12, 13, 14] * 3], True),
        ([1, 2, 3, *[7, 8, 9, 10, 11, 12, 13, 14] * 2], False),
        ([5] * 24, True),
        ([5] * 20, False),
        (list(range(200)), False),
        ([*list(range(48)) * 3], True),
        ([*[7, 8, 9, 10, 11, 12, 13, 14] * 3, 1], False),
        ([], False),
    ],
)
def test_loops(ids: list[int], looping: bool) -> None:
    assert is_looping(ids) is looping
