"""The small decoder against transformers, and its choice of experts."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from agent.engine.decoder import Decoder
from agent.engine.decoder_config import DecoderConfig
from agent.engine.protocol import EngineError
from agent.engine.selection import select

DENSE = DecoderConfig(512, hidden=64, layers=3, intermediate=128, eos=1)
SPARSE = DecoderConfig(
    512, hidden=64, layers=3, intermediate=128, experts=8, top_k=2, expert_intermediate=64, tied=False, eos=1
)
BOTH = pytest.mark.parametrize("config", [DENSE, SPARSE], ids=["dense", "sparse"])


def ids_of(seed: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, 512, shape, generator=torch.Generator().manual_seed(seed))


@BOTH
def test_transformers_computes_the_same_from_the_same_folder(config: DecoderConfig, tmp_path: Path) -> None:
    decoder = Decoder.fresh(config, 1, 0.2)
    decoder.save(tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    ids = ids_of(0, 3, 50)
    with torch.no_grad():
        logits = decoder(ids).logits
        assert (logits - theirs(ids).logits).abs().max() < 1e-4
        assert (logits[:, -1:] - decoder(ids, last=1).logits).abs().max() < 1e-5
    theirs.save_pretrained(tmp_path / "theirs")
    again = Decoder.from_folder(tmp_path / "theirs")
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(decoder.tensors(), again.tensors(), strict=True))
    assert again.config == config


@BOTH
def test_its_gradient_is_that_of_transformers(config: DecoderConfig, tmp_path: Path) -> None:
    decoder = Decoder.fresh(config, 1, 0.2)
    decoder.save(tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    ids = ids_of(1, 2, 20)
    for logits in (decoder(ids).logits, theirs(ids).logits):
        torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
    one, other = decoder.embed_tokens.weight.grad, theirs.get_input_embeddings().weight.grad
    assert isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) and one.abs().max() > 1e-3
    assert (one - other).abs().max() < 1e-5


def test_given_routes_replace_the_choice_and_the_router_still_learns() -> None:
    decoder, ids = Decoder.fresh(SPARSE, 1, 0.2), ids_of(2, 2, 20)
    output = decoder(ids)
    assert output.routes is not None and output.routes.shape == (2, 20, 3, 2)
    assert torch.equal(decoder(ids, routes=output.routes).logits, output.logits)
    missing = torch.full_like(output.routes, -1)
    assert torch.equal(decoder(ids, routes=missing).logits, output.logits)
    others = (output.routes + 1) % SPARSE.experts
    replayed = decoder(ids, routes=others)
    assert replayed.routes is not None
    assert torch.equal(replayed.routes.sort(-1).values, others.sort(-1).values)
    assert not torch.allclose(replayed.logits, output.logits)
    assert torch.equal(decoder(ids, routes=others, ratio=1.0).logits, output.logits)
    replayed.logits.square().mean().backward()
    gate = decoder.get_submodule("layers.0.mlp.gate").weight.grad
    assert isinstance(gate, torch.Tensor) and gate.abs().max() > 0


@settings(max_examples=200)
@given(seed=st.integers(0, 2**31), ratio=st.floats(0, 1))
def test_chosen_experts_are_distinct_and_plausible(seed: int, ratio: float) -> None:
    source = torch.Generator().manual_seed(seed)
    scores = torch.rand(6, 8, generator=source).softmax(-1)
    replay = torch.rand(6, 8, generator=source).topk(3, -1).indices
    replay[torch.rand(6, 3, generator=source) < 0.3] = -1
    chosen, live = select(scores, 3, replay, ratio), select(scores, 3)
    for token in range(6):
        picked, known = set(chosen[token].tolist()), set(replay[token].tolist()) - {-1}
        floor = ratio * scores[token, live[token]].min()
        kept = {expert for expert in known if scores[token, expert] >= floor}
        assert len(picked) == 3 and kept <= picked
        assert picked - kept <= set(live[token].tolist())


def test_weights_of_another_model_are_refused_and_change_nothing(tmp_path: Path) -> None:
    decoder = Decoder.fresh(DENSE, 1)
    before = {name: tensor.clone() for name, tensor in decoder.tensors()}
    for tensors in (
        dict(Decoder.fresh(SPARSE, 2).tensors()),
        {**before, "model.norm.weight": torch.ones(65)},
        {name: tensor for name, tensor in before.items() if "k_norm" not in name},
    ):
        with pytest.raises(EngineError, match=r"names differ|has the shape"):
            decoder.take(tensors)
    assert all(torch.equal(before[name], tensor) for name, tensor in decoder.tensors())
    decoder.save(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(EngineError, match="cannot be loaded"):
        Decoder.from_folder(tmp_path)
