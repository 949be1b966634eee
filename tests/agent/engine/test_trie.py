"""Continuations as a tree."""

import pytest

from agent.engine.trie import Trie

pytestmark = pytest.mark.local_model


def test_shared_beginnings_are_one_node_and_sums_follow_each_path() -> None:
    trie = Trie([[1, 2, 3], [1, 2], [1, 4], [5], []])
    assert trie.ids == [1, 2, 3, 4, 5]
    assert trie.parents == [-1, 0, 1, 0, -1]
    assert trie.depths == [0, 1, 2, 1, 0]
    assert trie.sums([1.0, 10.0, 100.0, 1000.0, 7.0]) == [111.0, 11.0, 1001.0, 7.0, 0.0]


def test_a_node_sees_its_ancestors_only() -> None:
    visible = Trie([[1, 2, 3], [1, 4]]).ancestry().int().tolist()
    assert visible == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 1]]
