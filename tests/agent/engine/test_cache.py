"""Keys and values of earlier sequences: grown without copies, shared, bounded."""

from typing import Any

import pytest
import torch
from transformers.cache_utils import DynamicCache, DynamicLayer

from agent.engine.cache import GrowingLayer, PrefixCache, crop, is_croppable

pytestmark = pytest.mark.local_model


def states(length: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(seed)
    return torch.randn(1, 2, length, 4), torch.randn(1, 2, length, 4)


def holding(layer: Any) -> Any:
    """A cache of one layer."""
    cache = DynamicCache()
    cache.layers, cache.layer_class_to_replicate = [layer], None
    return cache


def filled(length: int) -> Any:
    layer = GrowingLayer()
    layer.update(*states(length))
    return holding(layer)


def test_a_growing_layer_holds_what_a_concatenating_one_holds() -> None:
    growing = GrowingLayer()
    plain: Any = DynamicLayer()
    for seed, length in enumerate((5, 1, 1, 200, 1)):
        ours, theirs = growing.update(*states(length, seed)), plain.update(*states(length, seed))
        assert torch.equal(ours[0], theirs[0])
        assert torch.equal(ours[1], theirs[1])
        growing.crop(-1)
        plain.crop(-1)
    assert growing.get_seq_length() == plain.get_seq_length() == 203


def test_one_more_token_does_not_move_the_others() -> None:
    layer = GrowingLayer()
    layer.update(*states(5))
    where = layer.keys.data_ptr()
    layer.update(*states(1))
    assert layer.keys.data_ptr() == where


def test_a_cut_cache_forgets_its_end() -> None:
    cache = filled(10)
    crop(cache, 4)
    crop(cache, 9)
    assert cache.get_seq_length() == 4
    assert torch.equal(cache.layers[0].keys, states(10)[0][..., :4, :])


def test_the_longest_known_beginning_is_found_and_one_id_left_to_compute() -> None:
    prefixes = PrefixCache(1 << 20)
    prefixes.put("a", [1, 2, 3, 4], filled(4))
    cache, length = prefixes.take("a", [1, 2, 3, 4])
    assert (length, cache and cache.get_seq_length()) == (3, 3)
    assert prefixes.take("a", [1, 2, 3, 4]) == (None, 0)


def test_what_another_session_holds_is_copied() -> None:
    prefixes = PrefixCache(1 << 20)
    original = filled(4)
    prefixes.put("a", [1, 2, 3, 4], original)
    cache, length = prefixes.take("b", [1, 2, 9, 9])
    assert cache is not None
    assert length == 2
    head: Any = cache.layers[0]
    head.keys.fill_(0)
    assert torch.equal(original.layers[0].keys, states(4)[0])
    assert prefixes.take("a", [1, 2, 3, 4, 5])[1] == 4


def test_the_least_recently_used_goes_when_the_budget_is_spent() -> None:
    size = filled(4).layers[0]
    assert isinstance(size, GrowingLayer)
    prefixes = PrefixCache(2 * size.nbytes)
    for key in "abc":
        prefixes.put(key, [ord(key), 2, 3, 4], filled(4))
        assert prefixes.nbytes <= prefixes.budget
    assert prefixes.take("a", [ord("a"), 2, 3, 4]) == (None, 0)
    assert prefixes.take("c", [ord("c"), 2, 3, 4])[1] == 3
    assert len(prefixes) == 1
    PrefixCache(size.nbytes - 1).put("d", [1], filled(4))


def test_a_state_that_cannot_be_cut_serves_only_its_own_continuation() -> None:
    cache = holding(DynamicLayer())
    cache.layers[0].update(*states(3))
    assert not is_croppable(cache)
    prefixes = PrefixCache(1 << 20)
    prefixes.put("a", [1, 2, 3], cache)
    assert prefixes.take("b", [1, 2, 3, 4]) == (None, 0)
    assert prefixes.take("a", [1, 2, 3, 4]) == (cache, 3)
    prefixes.put("a", [1, 2, 3], cache)
    assert prefixes.take("a", [1, 2, 9]) == (None, 0)
