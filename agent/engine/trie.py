"""Many continuations as one tree, so that one forward pass scores them all."""

from collections.abc import Sequence

import torch


class Trie:
    """Token sequences that share their beginnings, as nodes in an order where parents come first.

    `ids[n]` is the token of node n, `parents[n]` its parent (-1 = the sequence it hangs on) and
    `depths[n]` how many tokens lie between. `leaves[k]` is the node where continuation k ends.
    """

    def __init__(self, continuations: Sequence[Sequence[int]]) -> None:
        self.ids: list[int] = []
        self.parents: list[int] = []
        self.depths: list[int] = []
        self.leaves: list[int] = []
        known: dict[tuple[int, int], int] = {}
        for continuation in continuations:
            node = -1
            for id in continuation:
                child = known.get((node, id))
                if child is None:
                    child = known[node, id] = len(self.ids)
                    self.ids.append(id)
                    self.parents.append(node)
                    self.depths.append(self.depths[node] + 1 if node >= 0 else 0)
                node = child
            self.leaves.append(node)

    def ancestry(self) -> torch.Tensor:
        """`[nodes, nodes]`: whether column is the row's node or one of its ancestors."""
        matrix = torch.eye(len(self.ids), dtype=torch.bool)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                matrix[node] |= matrix[parent]
        return matrix

    def sums(self, values: Sequence[float]) -> list[float]:
        """The sum of the nodes' values along each continuation."""
        totals: list[float] = []
        for value, parent in zip(values, self.parents, strict=True):
            totals.append(value + (totals[parent] if parent >= 0 else 0.0))
        return [totals[leaf] if leaf >= 0 else 0.0 for leaf in self.leaves]
