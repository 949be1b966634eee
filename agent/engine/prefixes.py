"""What is kept of sequences that ended, so that a longer prompt computes only what is new."""

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agent.engine.rows import Kept


@dataclass(frozen=True, slots=True)
class Prefix:
    """The ids, their keys and values, and the experts they were sent to `[ids, MoE layers, k]`."""

    ids: NDArray[np.int64]
    kept: Kept
    routes: NDArray[np.int16] | None
    version: int

    @property
    def nbytes(self) -> int:
        return self.kept.nbytes + (0 if self.routes is None else self.routes.nbytes)


class PrefixCache:
    """The least recently used goes first beyond `budget` bytes. Belongs to the engine's thread.

    Everything in it was computed by one version of the weights and is found under that version only.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._held: OrderedDict[str, Prefix] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def nbytes(self) -> int:
        return sum(prefix.nbytes for prefix in self._held.values())

    def take(self, key: str, ids: Sequence[int], version: int) -> Prefix | None:
        """The longest known beginning of `ids`, whoever it was computed for.

        At least one id is left out, since the model must see one to say what follows. What `key` itself had
        is handed over: it is stored anew when its sequence ends.
        """
        wanted, own = _array(ids), self._held.pop(key, None)
        best: Prefix | None = None
        for prefix in [*([own] if own else []), *self._held.values()]:
            if prefix.version != version:
                continue
            length = min(_common(prefix.ids, wanted), len(wanted) - 1)
            if length > (len(best.ids) if best else 0) and (kept := prefix.kept.head(length)) is not None:
                routes = None if prefix.routes is None else prefix.routes[:length]
                best = Prefix(prefix.ids[:length], kept, routes, version)
        return best

    def put(
        self, key: str, ids: Sequence[int], kept: Kept, routes: NDArray[np.int16] | None, version: int
    ) -> None:
        """Keep a sequence; `ids` are those whose keys and values are there."""
        self._held.pop(key, None)
        if not ids or kept.nbytes > self.budget:
            return
        self._held[key] = Prefix(_array(ids), kept, routes, version)
        total = self.nbytes
        while total > self.budget:
            _, oldest = self._held.popitem(last=False)
            total -= oldest.nbytes

    def clear(self) -> None:
        self._held.clear()


def _array(ids: Sequence[int]) -> NDArray[np.int64]:
    return np.frombuffer(array("q", ids), dtype=np.int64)


def _common(left: NDArray[np.int64], right: NDArray[np.int64]) -> int:
    length = min(len(left), len(right))
    differs = np.flatnonzero(left[:length] != right[:length])
    return int(differs[0]) if len(differs) else length
