"""Keys and values of past token sequences, kept so that a longer prompt computes only what is new."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

_GROWTH = 1.5
_ROUND = 128


class GrowingLayer(DynamicLayer):
    """A cache layer that writes into spare room instead of copying everything for each new token.

    `keys` and `values` are views `[batch, heads, length, head_dim]` of larger buffers.
    """

    keys: torch.Tensor
    values: torch.Tensor
    _key_buffer: torch.Tensor
    _value_buffer: torch.Tensor

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self._key_buffer = key_states[..., :0, :]
        self._value_buffer = value_states[..., :0, :]
        self.keys, self.values = self._key_buffer, self._value_buffer
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.keys.shape[-2]
        end = start + key_states.shape[-2]
        if end > self._key_buffer.shape[-2]:
            self._key_buffer = _enlarged(self._key_buffer, self.keys, end)
            self._value_buffer = _enlarged(self._value_buffer, self.values, end)
        self._key_buffer[..., start:end, :] = key_states
        self._value_buffer[..., start:end, :] = value_states
        self.keys = self._key_buffer[..., :end, :]
        self.values = self._value_buffer[..., :end, :]
        return self.keys, self.values

    @property
    def nbytes(self) -> int:
        if not self.is_initialized:
            return 0
        return self._key_buffer.nbytes + self._value_buffer.nbytes

    def head(self, length: int) -> "GrowingLayer":
        """A copy of the first `length` positions."""
        layer = GrowingLayer()
        if self.is_initialized:
            layer.update(self.keys[..., :length, :], self.values[..., :length, :])
        return layer


def _enlarged(buffer: torch.Tensor, used: torch.Tensor, needed: int) -> torch.Tensor:
    size = max(needed, int(buffer.shape[-2] * _GROWTH))
    size = -(-size // _ROUND) * _ROUND
    larger = used.new_empty((*used.shape[:-2], size, used.shape[-1]))
    larger[..., : used.shape[-2], :] = used
    return larger


def new_cache(config: Any) -> Cache:
    """An empty cache for this model. Layers with a sliding window or another state keep their own kind."""
    cache = DynamicCache(config=config)
    cache.layers = [GrowingLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def is_croppable(cache: Cache) -> bool:
    """Whether every layer can be cut back to any earlier length."""
    return all(type(layer) is GrowingLayer for layer in cache.layers)


def crop(cache: Cache, length: int) -> None:
    """Cut a croppable cache back to its first `length` positions."""
    surplus = cache.get_seq_length() - length
    if surplus > 0:
        cache.crop(-surplus)


@dataclass(slots=True)
class _Slot:
    ids: list[int]
    cache: Cache
    nbytes: int


class PrefixCache:
    """The keys and values of recent sequences, least recently used thrown out first beyond `budget` bytes.

    Not thread-safe: it belongs to the engine's thread.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._slots: OrderedDict[str, _Slot] = OrderedDict()

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def nbytes(self) -> int:
        return sum(slot.nbytes for slot in self._slots.values())

    def take(self, key: str, ids: Sequence[int]) -> tuple[Cache | None, int]:
        """A cache that holds the longest known prefix of `ids`, and that prefix's length.

        At least one id is left out, since the model must see one to say what follows. The own slot of
        `key` is handed over; what another key holds is copied.
        """
        own = self._slots.pop(key, None)
        own_length = self._usable(own, ids) if own else 0
        best, best_length = None, 0
        for slot in self._slots.values():
            length = self._usable(slot, ids)
            if length > best_length and is_croppable(slot.cache):
                best, best_length = slot, length
        if own is not None and own_length and own_length >= best_length:
            if is_croppable(own.cache):
                crop(own.cache, own_length)
            return own.cache, own_length
        if best is None:
            return None, 0
        copy = DynamicCache()
        heads: list[Any] = [
            layer.head(best_length) for layer in best.cache.layers if isinstance(layer, GrowingLayer)
        ]
        copy.layers, copy.layer_class_to_replicate = heads, None
        return copy, best_length

    def put(self, key: str, ids: list[int], cache: Cache) -> None:
        """Keep a sequence: `ids` are those whose keys and values the cache holds."""
        nbytes = sum(_layer_bytes(layer) for layer in cache.layers)
        self._slots.pop(key, None)
        if not ids or nbytes > self.budget:
            return
        self._slots[key] = _Slot(ids, cache, nbytes)
        total = self.nbytes
        while total > self.budget:
            _, oldest = self._slots.popitem(last=False)
            total -= oldest.nbytes

    def clear(self) -> None:
        self._slots.clear()

    @staticmethod
    def _usable(slot: _Slot, ids: Sequence[int]) -> int:
        limit = min(len(slot.ids), len(ids) - 1)
        length = 0
        while length < limit and slot.ids[length] == ids[length]:
            length += 1
        if length < len(slot.ids) and not is_croppable(slot.cache):
            return 0
        return length


def _layer_bytes(layer: Any) -> int:
    if isinstance(layer, GrowingLayer):
        return layer.nbytes
    tensors = (value for value in vars(layer).values() if isinstance(value, torch.Tensor))
    return sum(tensor.nbytes for tensor in tensors)
