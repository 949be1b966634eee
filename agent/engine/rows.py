"""Sequences under way: what a network has consumed of each, and how it goes on."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, Self

from torch import Tensor

from agent.engine.trie import Trie


class Step(NamedTuple):
    """`logits` `[n, vocabulary]`; `routes` `[n, MoE layers, k]` of the consumed ids, None without experts."""

    logits: Tensor
    routes: Tensor | None


@dataclass(eq=False, slots=True)
class Row:
    """One sequence. `ids` are exactly those whose keys and values `place` (a slot, or a cache) holds."""

    place: Any
    ids: list[int] = field(default_factory=list)


class Kept(Protocol):
    """Keys and values of a sequence that ended."""

    @property
    def nbytes(self) -> int: ...

    def head(self, length: int) -> Self | None:
        """Those of the first `length` ids; None where they cannot be had."""
        ...


class Rows(Protocol):
    """The sequences of one network. Belongs to the engine's thread."""

    network: Any
    """An `agent.engine.network.Network`; may be exchanged for one of the same sizes."""

    def open(self, ids: Sequence[int], kept: Kept | None) -> Row:
        """A sequence that begins with `ids`, whose keys and values are `kept` (none for no ids)."""
        ...

    def feed(self, row: Row, ids: Sequence[int], every: bool = False) -> Step:
        """Consume ids; the logits after the last, or after `every` one."""
        ...

    def step(self, rows: Sequence[Row], ids: Sequence[int]) -> Step:
        """Consume one id of each of several rows, in one pass where the network can."""
        ...

    def branch(self, row: Row, trie: Trie) -> Tensor:
        """Logits `[nodes, vocabulary]` after each node of a trie on the sequence, which stays as it is.

        Raises:
            EngineError: the network's state cannot be cut back.
        """
        ...

    def close(self, row: Row) -> Kept:
        """End a row and give what it held."""
        ...
