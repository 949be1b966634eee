"""Rows of different lengths in one pass: each has a slot of a shared tensor and writes at its own place."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from agent.engine.network import Network
from agent.engine.rows import Kept, Row, Step
from agent.engine.trie import Trie

GROWTH: Final = 1.5
ROUND: Final = 128
"""Positions by which a slot grows at least."""


@dataclass(frozen=True, slots=True)
class RaggedKept:
    """Per layer keys and values `[heads, length, head dim]`."""

    layers: list[tuple[Tensor, Tensor]]

    @property
    def nbytes(self) -> int:
        return sum(keys.nbytes + values.nbytes for keys, values in self.layers)

    def head(self, length: int) -> Self:
        return type(self)([(keys[:, :length], values[:, :length]) for keys, values in self.layers])


class Slots(Cache):
    """The keys and values of all rows, `[slots, heads, capacity, head dim]` a layer.

    A pass first says with `aim` which slots it is about and where their new ids go.
    """

    def __init__(self, layers: int) -> None:
        super().__init__(layers=[])
        self.keys: list[Tensor | None] = [None] * layers
        self.values: list[Tensor | None] = [None] * layers
        self.slots = self.capacity = 0
        self._rows: slice | Tensor = slice(0, 0)
        self._where: list[int] = []
        self._starts: list[int] = []
        self._at = torch.empty(0), torch.empty(0)
        self._reach = 0

    def aim(self, slots: Sequence[int], starts: Sequence[int], count: int) -> int:
        """The next pass writes `count` positions of each slot from its start on; how far it reaches."""
        first, last = min(slots), max(slots)
        neighbours = list(slots) == list(range(first, last + 1))
        self._rows = slice(first, last + 1) if neighbours else torch.tensor(slots)
        self._where, self._starts = list(slots), list(starts)
        self._at = torch.tensor(self._where), torch.tensor(self._starts)
        self._reach = max(starts) + count
        return self._reach

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        keys = self.keys[layer_idx] = self._roomy(self.keys[layer_idx], key_states)
        values = self.values[layer_idx] = self._roomy(self.values[layer_idx], value_states)
        count = key_states.shape[2]
        if count == 1:
            where, starts = self._at
            keys[where, :, starts] = key_states[:, :, 0]
            values[where, :, starts] = value_states[:, :, 0]
        else:
            for index, (slot, start) in enumerate(zip(self._where, self._starts, strict=True)):
                keys[slot, :, start : start + count] = key_states[index]
                values[slot, :, start : start + count] = value_states[index]
        return keys[self._rows, :, : self._reach], values[self._rows, :, : self._reach]

    def reserve(self, slots: int, length: int) -> None:
        """Make room for so many slots of so many positions."""
        self.slots = max(self.slots, slots)
        if length > self.capacity:
            grown = max(length, int(self.capacity * GROWTH))
            self.capacity = -(-grown // ROUND) * ROUND

    def forget(self) -> None:
        """Give the memory back."""
        self.keys, self.values = [None] * len(self.keys), [None] * len(self.values)
        self.slots = self.capacity = 0

    def read(self, slot: int, length: int) -> list[tuple[Tensor, Tensor]]:
        """A copy of a slot's first positions."""
        return [
            (keys[slot, :, :length].clone(), values[slot, :, :length].clone())
            for keys, values in zip(self.keys, self.values, strict=True)
            if keys is not None and values is not None
        ]

    def write(self, slot: int, layers: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Put what was read at the start of a slot."""
        for index, (keys, values) in enumerate(layers):
            mine = self.keys[index] = self._roomy(self.keys[index], keys[None])
            mine[slot, :, : keys.shape[1]] = keys
            mine = self.values[index] = self._roomy(self.values[index], values[None])
            mine[slot, :, : values.shape[1]] = values

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0  # positions and masks are given with every pass

    def _roomy(self, held: Tensor | None, like: Tensor) -> Tensor:
        shape = (self.slots, like.shape[1], self.capacity, like.shape[3])
        if held is not None and held.shape == shape:
            return held
        # Zeros, not what the memory held: a masked NaN is still a NaN.
        larger = like.new_zeros(shape)
        if held is not None:
            larger[: held.shape[0], :, : held.shape[2]] = held
        return larger


class RaggedRows:
    """Rows of a network whose every layer keeps plain keys and values."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._store = Slots(network.layers)
        self._open: dict[int, Row] = {}

    def open(self, ids: Sequence[int], kept: Kept | None) -> Row:
        slot = next(index for index in range(len(self._open) + 1) if index not in self._open)
        self._store.reserve(slot + 1, len(ids) + 1)
        if kept is not None:
            assert isinstance(kept, RaggedKept)
            device = self.network.device
            self._store.write(slot, [(keys.to(device), values.to(device)) for keys, values in kept.layers])
        row = self._open[slot] = Row(slot, list(ids))
        return row

    def feed(self, row: Row, ids: Sequence[int], every: bool = False) -> Step:
        start, count = len(row.ids), len(ids)
        columns = torch.arange(start + count)
        seen = columns <= torch.arange(start, start + count)[:, None]
        step = self._pass([row], [ids], [start], seen[None, None], None, 0 if every else 1)
        row.ids.extend(ids)
        return Step(step.logits[0], None if step.routes is None else step.routes[0])

    def step(self, rows: Sequence[Row], ids: Sequence[int]) -> Step:
        ordered = sorted(zip(rows, ids, strict=True), key=lambda pair: pair[0].place)
        starts = [len(row.ids) for row, _ in ordered]
        seen = torch.arange(max(starts) + 1) <= torch.tensor(starts)[:, None]
        step = self._pass(
            [row for row, _ in ordered], [[id] for _, id in ordered], starts, seen[:, None, None], None, 1
        )
        for row, id in ordered:
            row.ids.append(id)
        order = {row.place: index for index, (row, _) in enumerate(ordered)}
        back = torch.tensor([order[row.place] for row in rows])
        return Step(step.logits[back, 0], None if step.routes is None else step.routes[back, 0])

    def branch(self, row: Row, trie: Trie) -> Tensor:
        past, nodes = len(row.ids), len(trie.ids)
        seen = torch.cat([torch.ones(nodes, past, dtype=torch.bool), trie.ancestry()], dim=1)
        depths = [past + depth for depth in trie.depths]
        return self._pass([row], [trie.ids], [past], seen[None, None], [depths], 0).logits[0]

    def peek(self, row: Row, length: int) -> RaggedKept:
        """A copy of what is held of the first `length` ids of a row."""
        return RaggedKept(self._store.read(row.place, length))

    def close(self, row: Row) -> RaggedKept:
        del self._open[row.place]
        kept = RaggedKept(self._store.read(row.place, len(row.ids)))
        if not self._open:
            self._store.forget()
        return kept

    def _pass(
        self,
        rows: Sequence[Row],
        ids: Sequence[Sequence[int]],
        starts: Sequence[int],
        seen: Tensor,
        positions: Sequence[Sequence[int]] | None,
        last: int,
    ) -> Step:
        """One forward pass; `seen` `[rows, 1, new, all]` is what each new id may attend to."""
        count = len(ids[0])
        self._store.reserve(max(self._open) + 1, max(starts) + count)
        self._store.aim([row.place for row in rows], starts, count)
        where = positions or [range(start, start + count) for start in starts]
        return self.network.forward(
            torch.tensor([list(one) for one in ids]),
            torch.tensor([list(one) for one in where]),
            seen,
            self._store,
            last,
        )
