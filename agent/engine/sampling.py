"""One token from one row of logits: the id that is drawn and its exact log-prob."""

import torch

from agent.engine.protocol import Sampling


def draw(
    logits: torch.Tensor,
    sampling: Sampling,
    generator: torch.Generator | None,
    allowed: torch.Tensor | None = None,
) -> tuple[int, float]:
    """Draw an id from `logits` `[vocabulary]` and say how probable it was.

    The log-prob is that of the whole, unconstrained softmax at the sampling temperature (at 1 when
    greedy), in fp32: what a trainer computes from a forward pass over the same ids. `top_p` keeps the
    smallest set of ids whose probabilities reach it; `allowed` `[vocabulary]` keeps only its true ids.
    """
    logits = logits.float()
    temperature = sampling.temperature if sampling.temperature > 0 else 1.0
    logprobs = torch.log_softmax(logits / temperature, dim=-1)
    candidates = logprobs if allowed is None else logprobs.masked_fill(~allowed, float("-inf"))
    if sampling.temperature <= 0:
        id = int(candidates.argmax())
    else:
        probabilities = torch.softmax(candidates, dim=-1)
        if sampling.top_p < 1:
            probabilities = nucleus(probabilities, sampling.top_p)
        id = int(torch.multinomial(probabilities, 1, generator=generator))
    return id, float(logprobs[id])


def nucleus(probabilities: torch.Tensor, top_p: float) -> torch.Tensor:
    """`probabilities` `[vocabulary]` with everything outside the top-p set at zero (not renormalised).

    The most probable id always stays.
    """
    ordered, order = probabilities.sort(descending=True)
    above = torch.cat([ordered.new_zeros(1), ordered.cumsum(0)[:-1]])
    outside = above >= top_p
    outside[0] = False
    return probabilities.index_fill(0, order[outside], 0.0)


def logprobs_of(logits: torch.Tensor, ids: torch.Tensor, temperature: float) -> list[float]:
    """Log-probs of given `ids` `[n]` under `logits` `[n, vocabulary]`, as `draw` would report them."""
    scaled = torch.log_softmax(logits.float() / (temperature if temperature > 0 else 1.0), dim=-1)
    return scaled.gather(1, ids[:, None])[:, 0].tolist()
