"""Which experts transformers' models send each token to, watched where their routers answer."""

from typing import Any

import torch
from torch import Tensor, nn

TRIED = 7
"""Ids of the pass by which it is seen whether the routers can be watched."""


class Routers:
    """`Routers.of(model)`; `taken()` after a pass gives what its routers chose."""

    def __init__(self, modules: list[nn.Module]) -> None:
        self._found: list[Tensor] = []
        self._hooks = [module.register_forward_hook(self._note) for module in modules]
        self.top_k = 0

    @classmethod
    @torch.inference_mode()
    def of(cls, model: nn.Module, device: torch.device) -> "Routers | None":
        """Watch a model; None where it has no routers, or none that say what they chose.

        A router is a module that answers with a tuple, one part of which holds distinct whole numbers
        `[tokens, k]`. A pass over a few ids shows whether all of them do.
        """
        modules = [one for one in model.modules() if type(one).__name__.endswith("Router")]
        if not modules:
            return None
        made = cls(modules)
        model(torch.arange(TRIED, device=device)[None], use_cache=False)
        routes = made.taken(1, TRIED)
        if routes is None or routes.shape[2] != len(modules) or not _distinct(routes):
            made.close()
            return None
        made.top_k = routes.shape[3]
        return made

    def taken(self, rows: int, new: int) -> Tensor | None:
        """`[rows, new, MoE layers, k]` of the last pass, None where not every router said so."""
        found, self._found = self._found, []
        if not found or any(one.shape != (rows * new, found[0].shape[1]) for one in found):
            return None
        return torch.stack([one.view(rows, new, -1) for one in found], 2)

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _note(self, module: nn.Module, given: Any, answer: Any) -> None:
        for part in answer if isinstance(answer, tuple) else ():
            if isinstance(part, Tensor) and part.dtype in (torch.int64, torch.int32) and part.dim() == 2:
                self._found.append(part)
                return


def _distinct(routes: Tensor) -> bool:
    ordered = routes.sort(-1).values
    return bool((ordered[..., 1:] > ordered[..., :-1]).all() and (ordered >= 0).all())
