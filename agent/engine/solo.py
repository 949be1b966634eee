"""Rows of networks that keep more than keys and values (windows, states): each in a cache of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from agent.engine.network import Network
from agent.engine.protocol import EngineError
from agent.engine.rows import Kept, Row, Step
from agent.engine.trie import Trie


@dataclass(frozen=True, slots=True)
class SoloKept:
    """A cache that cannot be cut back: it is of use to sequences that begin with all of its ids."""

    cache: DynamicCache
    length: int

    @property
    def nbytes(self) -> int:
        held = (value for layer in self.cache.layers for value in vars(layer).values())
        return sum(value.nbytes for value in held if isinstance(value, Tensor))

    def head(self, length: int) -> Self | None:
        return self if length == self.length else None


class SoloRows:
    """One pass for each row: the families that this serves know no masks of ours."""

    def __init__(self, network: Network) -> None:
        self.network = network

    def open(self, ids: Sequence[int], kept: Kept | None) -> Row:
        if kept is None:
            return Row(DynamicCache(config=self.network.config))
        assert isinstance(kept, SoloKept)
        return Row(kept.cache, list(ids))

    def feed(self, row: Row, ids: Sequence[int], every: bool = False) -> Step:
        output: Any = self.network.model(
            torch.tensor([list(ids)], device=self.network.device),
            past_key_values=row.place,
            logits_to_keep=0 if every else 1,
        )
        row.ids.extend(ids)
        return Step(output.logits[0], None)

    def step(self, rows: Sequence[Row], ids: Sequence[int]) -> Step:
        fed = [self.feed(row, [id]).logits for row, id in zip(rows, ids, strict=True)]
        return Step(torch.cat(fed), None)

    def branch(self, row: Row, trie: Trie) -> Tensor:
        raise EngineError("This model's state cannot be cut back, so it cannot score branches.")

    def close(self, row: Row) -> SoloKept:
        return SoloKept(row.place, len(row.ids))
