"""Which experts a token goes to: the live choice, or one made earlier, where that is still plausible."""

import torch
from torch import Tensor


def select(scores: Tensor, top_k: int, replay: Tensor | None = None, ratio: float = 0.0) -> Tensor:
    """Indices `[tokens, top_k]` of distinct experts, by `scores` `[tokens, experts]` in [0, 1].

    `replay` `[tokens, top_k]` are those chosen earlier, -1 where that is not known. One is kept when its
    score is at least `ratio` times the lowest of the live choice, which fills what is missing. `ratio` 0
    keeps all, 1 gives the live choice. (Router replay with the filter of the Composer 2 report, section 6.2.)
    """
    live = scores.topk(top_k, -1)
    if replay is None:
        return live.indices
    slot = replay.long().clamp_min(0)
    kept = (replay >= 0) & (scores.gather(1, slot) >= ratio * live.values[:, -1:])
    above = torch.zeros_like(scores).scatter_add_(1, slot, 2.0 * kept.to(scores.dtype))
    return (scores + above).topk(top_k, -1).indices
