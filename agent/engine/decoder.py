"""A small decoder, dense or with experts: the architecture, names and numbers of Qwen3 and Qwen3-MoE.

A folder that it saves loads in transformers and vLLM, and the other way round. It is plain PyTorch, without
anything that a forward and a backward pass do not need: the engine decodes with it, a trainer differentiates
it, tests and practice make it from nothing.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from agent.engine.decoder_config import DecoderConfig
from agent.engine.protocol import EngineError
from agent.engine.selection import select

WEIGHTS: Final = "model.safetensors"
CONFIG: Final = "config.json"


class KeyValues(Protocol):
    """Where a pass leaves its keys and values, and finds those of earlier ones."""

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Take `[batch, kv heads, new, head dim]`, give all that may be attended to."""
        ...


class Output(NamedTuple):
    """`logits` `[batch, new, vocabulary]`; `routes` `[batch, new, layers, k]`, None for a dense decoder."""

    logits: Tensor
    routes: Tensor | None


class Decoder(nn.Module):
    """`Decoder(config)` is filled with small random numbers; see `fresh` and `from_folder`."""

    frequencies: Tensor

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.hidden, config.eps)
        self.lm_head = nn.Linear(config.hidden, config.vocab_size, bias=False)
        if config.tied:
            self.lm_head.weight = self.embed_tokens.weight
        half = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
        self.register_buffer("frequencies", config.rope_theta**-half, persistent=False)

    @classmethod
    def fresh(cls, config: DecoderConfig, seed: int = 0, spread: float = 0.02) -> "Decoder":
        """Normal random weights with standard deviation `spread`, the same for the same seed."""
        made, source = cls(config), torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for weight in made.parameters():
                weight.normal_(0.0, spread, generator=source) if weight.dim() > 1 else weight.fill_(1.0)
        return made

    @classmethod
    def from_folder(cls, folder: Path) -> "Decoder":
        """Raises `EngineError` for a folder that holds another architecture or broken weights."""
        try:
            config = DecoderConfig.read(json.loads((folder / CONFIG).read_text(encoding="utf-8")))
            if config is None:
                raise EngineError(
                    f"{folder} is not a plain Qwen3 or Qwen3-MoE model; open it with transformers."
                )
            made = cls(config)
            tensors: dict[str, Tensor] = {}
            for path in sorted(folder.glob("*.safetensors")):
                tensors |= load_file(path)
            made.take(tensors)
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            raise EngineError(f"{folder} cannot be loaded: {error}") from error
        return made

    def save(self, folder: Path) -> None:
        """Write configuration and weights, under the names that transformers and vLLM know."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CONFIG).write_text(json.dumps(self.config.written(), indent=2), encoding="utf-8")
        tensors = {name: tensor.detach().contiguous().clone() for name, tensor in self.tensors()}
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every weight under its name on disk, as a view: writing into it changes the decoder."""
        for name, tensor in self.state_dict(keep_vars=True).items():
            if name == "lm_head.weight":
                if not self.config.tied:
                    yield name, tensor
            elif name.endswith(".experts.gate_up"):
                for index, part in enumerate(tensor):
                    gate, up = part.chunk(2)
                    yield f"model.{name.removesuffix('gate_up')}{index}.gate_proj.weight", gate
                    yield f"model.{name.removesuffix('gate_up')}{index}.up_proj.weight", up
            elif name.endswith(".experts.down"):
                for index, part in enumerate(tensor):
                    yield f"model.{name.removesuffix('down')}{index}.down_proj.weight", part
            else:
                yield f"model.{name}", tensor

    @torch.no_grad()
    def take(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy weights in; all of them, or none.

        Raises:
            EngineError: one is missing, unknown or of another shape.
        """
        own = dict(self.tensors())
        given = {name: one for name, one in tensors.items() if name in own or name != "lm_head.weight"}
        if given.keys() != own.keys():
            odd = sorted(given.keys() ^ own.keys())
            raise EngineError(f"The weights are of another model: {len(odd)} names differ, such as {odd[0]}.")
        for name, tensor in own.items():
            if given[name].shape != tensor.shape:
                raise EngineError(
                    f"{name} has the shape {list(given[name].shape)}, expected {list(tensor.shape)}."
                )
        for name, tensor in own.items():
            tensor.copy_(given[name])

    def forward(
        self,
        ids: Tensor,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        store: KeyValues | None = None,
        routes: Tensor | None = None,
        ratio: float = 0.0,
        last: int = 0,
    ) -> Output:
        """A pass over `ids` `[batch, new]`.

        `positions` `[batch, new]` default to 0, 1, …; `mask` `[batch, 1, new, all]` says what may be attended
        to (default: causal). Given `routes` replace the choice of experts, not their weights (see `select`).
        `last` > 0 computes the logits of the last so many positions only.
        """
        if positions is None:
            positions = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        angles = positions[..., None].float() * self.frequencies
        turn = torch.cat((angles, angles), -1)[:, None]
        hidden, chosen = self.embed_tokens(ids), []
        turns = turn.cos().to(hidden.dtype), turn.sin().to(hidden.dtype)
        for index, layer in enumerate(self.layers):
            wanted = None if routes is None else routes[:, :, index]
            hidden, picked = layer(hidden, turns, mask, store, index, wanted, ratio)
            chosen.append(picked)
        logits = self.lm_head(self.norm(hidden[:, -last:] if last else hidden))
        return Output(logits, torch.stack(chosen, 2) if self.config.experts else None)


class Layer(nn.Module):
    """Attention, then a feed-forward part, each beside the stream."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.self_attn = Attention(config)
        self.mlp = Experts(config) if config.experts else FeedForward(config)
        self.input_layernorm = nn.RMSNorm(config.hidden, config.eps)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden, config.eps)

    def forward(
        self,
        hidden: Tensor,
        turns: tuple[Tensor, Tensor],
        mask: Tensor | None,
        store: KeyValues | None,
        index: int,
        routes: Tensor | None,
        ratio: float,
    ) -> tuple[Tensor, Tensor | None]:
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), turns, mask, store, index)
        more, picked = self.mlp(self.post_attention_layernorm(hidden), routes, ratio)
        return hidden + more, picked


class Attention(nn.Module):
    """Grouped-query attention with rotary positions; queries and keys are normalised per head."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.q_proj = nn.Linear(config.hidden, config.heads * config.head_dim, bias=False)
        self.k_proj = nn.Linear(config.hidden, config.kv_heads * config.head_dim, bias=False)
        self.v_proj = nn.Linear(config.hidden, config.kv_heads * config.head_dim, bias=False)
        self.o_proj = nn.Linear(config.heads * config.head_dim, config.hidden, bias=False)
        self.q_norm = nn.RMSNorm(config.head_dim, config.eps)
        self.k_norm = nn.RMSNorm(config.head_dim, config.eps)

    def forward(
        self,
        hidden: Tensor,
        turns: tuple[Tensor, Tensor],
        mask: Tensor | None,
        store: KeyValues | None,
        index: int,
    ) -> Tensor:
        shape = (*hidden.shape[:2], -1, self.head_dim)
        queries = turned(self.q_norm(self.q_proj(hidden).view(shape)).transpose(1, 2), turns)
        keys = turned(self.k_norm(self.k_proj(hidden).view(shape)).transpose(1, 2), turns)
        values = self.v_proj(hidden).view(shape).transpose(1, 2)
        if store is not None:
            keys, values = store.update(keys, values, index)
        found = F.scaled_dot_product_attention(
            queries, keys, values, attn_mask=mask, is_causal=mask is None, enable_gqa=True
        )
        return self.o_proj(found.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """Gated linear units."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden, config.intermediate, bias=False)
        self.up_proj = nn.Linear(config.hidden, config.intermediate, bias=False)
        self.down_proj = nn.Linear(config.intermediate, config.hidden, bias=False)

    def forward(self, hidden: Tensor, routes: Tensor | None, ratio: float) -> tuple[Tensor, None]:
        return self.down_proj(F.silu(self.gate_proj(hidden)) * self.up_proj(hidden)), None


class Weights(nn.Module):
    """Those of all experts of a layer, in two tensors."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        size = config.expert_intermediate
        self.gate_up = nn.Parameter(torch.empty(config.experts, 2 * size, config.hidden).normal_(0, 0.02))
        self.down = nn.Parameter(torch.empty(config.experts, config.hidden, size).normal_(0, 0.02))


class Experts(nn.Module):
    """Sends each token to the `top_k` experts that its router scores highest."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.top_k, self.norm_topk = config.top_k, config.norm_topk
        self.gate = nn.Linear(config.hidden, config.experts, bias=False)
        self.experts = Weights(config)

    def forward(self, hidden: Tensor, routes: Tensor | None, ratio: float) -> tuple[Tensor, Tensor]:
        tokens = hidden.flatten(0, 1)
        scores = F.softmax(self.gate(tokens), -1, dtype=torch.float32)
        replay = None if routes is None else routes.flatten(0, 1)
        picked = select(scores.detach(), self.top_k, replay, ratio)
        weights = scores.gather(1, picked)
        if self.norm_topk:
            weights = weights / weights.sum(-1, keepdim=True)
        weights, made = weights.to(hidden.dtype), torch.zeros_like(tokens)
        for index in picked.unique().tolist():
            row, place = torch.where(picked == index)
            gate, up = F.linear(tokens[row], self.experts.gate_up[index]).chunk(2, -1)
            one = F.linear(F.silu(gate) * up, self.experts.down[index])
            made = made.index_add(0, row, one * weights[row, place, None])
        return made.view_as(hidden), picked.view(*hidden.shape[:2], self.top_k)


def turned(states: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary position embedding of `[batch, heads, new, head dim]` (Su et al., 2021), halves paired."""
    cos, sin = turns
    first, second = states.chunk(2, -1)
    return states * cos + torch.cat((-second, first), -1) * sin
