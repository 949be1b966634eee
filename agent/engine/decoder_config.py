"""The sizes of the small decoder, and how Hugging Face configurations say them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Sizes. `experts` 0 = dense; else every layer has so many, of which each token is sent to `top_k`.

    `norm_topk` divides the weights of the chosen experts by their sum.
    """

    vocab_size: int
    hidden: int = 128
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    intermediate: int = 384
    experts: int = 0
    top_k: int = 0
    expert_intermediate: int = 0
    norm_topk: bool = True
    positions: int = 8192
    rope_theta: float = 10_000.0
    eps: float = 1e-6
    tied: bool = True
    eos: int | None = None

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self | None:
        """From a Hugging Face configuration; None where it asks for something this decoder does not do."""
        sparse = config.get("model_type") == "qwen3_moe"
        rope = config.get("rope_parameters") or {}
        plain = (
            config.get("model_type") in ("qwen3", "qwen3_moe")
            and config.get("hidden_act", "silu") == "silu"
            and not config.get("attention_bias")
            and not config.get("use_sliding_window")
            and not config.get("rope_scaling")
            and rope.get("rope_type", "default") == "default"
            and (
                not sparse
                or (config.get("decoder_sparse_step", 1) == 1 and not config.get("mlp_only_layers"))
            )
        )
        if not plain:
            return None
        ends = config.get("eos_token_id")
        return cls(
            vocab_size=config["vocab_size"],
            hidden=config["hidden_size"],
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            kv_heads=config["num_key_value_heads"],
            head_dim=config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"],
            intermediate=config["intermediate_size"],
            experts=(config.get("num_experts") or config["num_local_experts"]) if sparse else 0,
            top_k=config["num_experts_per_tok"] if sparse else 0,
            expert_intermediate=config["moe_intermediate_size"] if sparse else 0,
            norm_topk=bool(config.get("norm_topk_prob", False)) if sparse else True,
            positions=config["max_position_embeddings"],
            rope_theta=rope.get("rope_theta") or config.get("rope_theta", 10_000.0),
            eps=config["rms_norm_eps"],
            tied=bool(config.get("tie_word_embeddings", False)),
            eos=ends[0] if isinstance(ends, list) else ends,
        )

    def written(self) -> dict[str, Any]:
        """The Hugging Face configuration."""
        sizes = {
            "num_experts": self.experts,
            "num_experts_per_tok": self.top_k,
            "moe_intermediate_size": self.expert_intermediate,
            "norm_topk_prob": self.norm_topk,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        }
        return {
            "architectures": ["Qwen3MoeForCausalLM" if self.experts else "Qwen3ForCausalLM"],
            "model_type": "qwen3_moe" if self.experts else "qwen3",
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.intermediate,
            "hidden_act": "silu",
            "attention_bias": False,
            "max_position_embeddings": self.positions,
            "rope_theta": self.rope_theta,
            "rope_parameters": {"rope_theta": self.rope_theta, "rope_type": "default"},
            "rms_norm_eps": self.eps,
            "tie_word_embeddings": self.tied,
            "eos_token_id": self.eos,
            "bos_token_id": None,
            "torch_dtype": "float32",
            **(sizes if self.experts else {}),
        }
