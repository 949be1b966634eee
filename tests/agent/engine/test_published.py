"""Policies from disk under running jobs: snapshots and deltas, in our decoder and in transformers."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from agent.engine.decoder import Decoder
from agent.engine.decoder_config import DecoderConfig
from agent.engine.policies import BrokenPolicy, Tensor, restore, write
from agent.engine.protocol import Job, Sampling
from agent.engine.published import Published
from agent.engine.scheduler import EngineSettings
from agent.engine.torch_engine import TorchEngine

SPARSE = DecoderConfig(
    256, hidden=32, layers=2, heads=2, kv_heads=1, intermediate=64, experts=4, top_k=2, expert_intermediate=32
)
PROMPT = [3, 14, 15, 92, 65]
VERSIONS = 50


def bits(tensors: dict[str, torch.Tensor]) -> dict[str, Tensor]:
    """As a trainer publishes them: bf16."""
    return {
        name: Tensor(
            "BF16", tuple(one.shape), one.bfloat16().contiguous().view(torch.uint8).numpy().reshape(-1)
        )
        for name, one in tensors.items()
    }


def publish(policy: Path, base: Path, tensors: dict[str, torch.Tensor], count: int) -> None:
    """Versions 0 … count - 1, each a few weights away from the one before."""
    source, previous = np.random.default_rng(0), None
    for number in range(count):
        for one in tensors.values():
            flat = one.view(-1)
            at = source.integers(0, len(flat), max(1, len(flat) // 50))
            flat[at] += torch.tensor(source.normal(0, 0.05, len(at)), dtype=flat.dtype)
        now = bits(tensors)
        write(policy, number, now, base, previous)
        previous = now


def test_fifty_versions_are_byte_identical_and_transformers_loads_a_snapshot(tmp_path: Path) -> None:
    decoder = Decoder.fresh(SPARSE, 1, 0.2)
    decoder.save(tmp_path / "base")
    tensors = {name: one.detach().clone() for name, one in decoder.tensors()}
    publish(tmp_path / "p", tmp_path / "base", tensors, VERSIONS)
    last = restore(tmp_path / "p", VERSIONS - 1)
    assert all(np.array_equal(last[name].data, one.data) for name, one in bits(tensors).items())
    snapshot = max(int(one.parent.name) for one in (tmp_path / "p").glob("*/model.safetensors"))
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "p" / str(snapshot), dtype=torch.float32).eval()
    found = Published(tmp_path, tmp_path, restore(tmp_path / "p", snapshot))
    decoder.take(found.tensors())
    with torch.no_grad():
        ids = torch.tensor([PROMPT])
        assert (theirs(ids).logits - decoder(ids).logits).abs().max() < 1e-4


@pytest.mark.parametrize("family", ["own", "llama"])
async def test_deltas_are_taken_up_under_a_running_job(tmp_path: Path, family: str) -> None:
    if family == "own":
        decoder = Decoder.fresh(SPARSE, 1, 0.2)
        decoder.save(tmp_path / "base")
        tensors = {name: one.detach().clone() for name, one in decoder.tensors()}
    else:
        torch.manual_seed(0)
        sizes: dict[str, Any] = {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 64,
        }
        model = LlamaForCausalLM(LlamaConfig(vocab_size=256, **sizes, initializer_range=0.2))
        model.save_pretrained(tmp_path / "base")
        tensors = {name: one.detach().clone() for name, one in model.state_dict().items()}
    policy = tmp_path / "p"
    publish(policy, tmp_path / "base", tensors, 5)
    engine = TorchEngine(policy / "0", settings=EngineSettings(threads=1))
    try:
        await engine.start()
        job = Job("a", PROMPT, Sampling(max_tokens=4000, seed=1), deadline_s=20)
        seen = 0

        def note(id: int, logprob: float) -> bool:
            nonlocal seen
            seen += 1
            return engine.version == 4 and seen > 30

        running = asyncio.create_task(engine.generate(job, note))
        for number in (1, 2, 4):  # whoever missed 3 goes back to the snapshot
            await asyncio.sleep(0.02)
            await engine.load(policy / str(number), number)
        drawn = await running
        assert drawn.versions == sorted(drawn.versions) and drawn.versions[-1] == 4
        after = await engine.generate(Job("b", PROMPT, Sampling(temperature=0, max_tokens=8)))
    finally:
        await engine.close()
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "base", dtype=torch.float32).eval()
    if family == "own":
        fresh = Decoder.from_folder(tmp_path / "base")
        fresh.take(Published(policy, policy, restore(policy, 4)).tensors())
        logits = fresh(torch.tensor([[*PROMPT, *after.ids]])).logits
    else:
        theirs.load_state_dict(Published(policy, policy, restore(policy, 4)).tensors())
        logits = theirs(torch.tensor([[*PROMPT, *after.ids]])).logits
    steps = torch.log_softmax(logits[0, len(PROMPT) - 1 : -1], -1)
    expected = steps.gather(1, torch.tensor(after.ids)[:, None])[:, 0].tolist()
    assert after.logprobs == pytest.approx(expected, abs=1e-5)


async def test_a_flipped_bit_is_refused_and_the_old_weights_go_on(tmp_path: Path) -> None:
    decoder = Decoder.fresh(SPARSE, 1, 0.2)
    decoder.save(tmp_path / "base")
    publish(tmp_path / "p", tmp_path / "base", {n: t.detach().clone() for n, t in decoder.tensors()}, 2)
    delta = tmp_path / "p" / "1" / "delta.bin"
    broken = bytearray(delta.read_bytes())
    broken[len(broken) // 2] ^= 1
    delta.write_bytes(broken)
    engine = TorchEngine(tmp_path / "p" / "0", settings=EngineSettings(threads=1))
    try:
        await engine.start()
        before = await engine.generate(Job("a", PROMPT, Sampling(temperature=0, max_tokens=8)))
        with pytest.raises(BrokenPolicy, match="damaged"):
            await engine.load(tmp_path / "p" / "1", 1)
        again = await engine.generate(Job("b", PROMPT, Sampling(temperature=0, max_tokens=8)))
    finally:
        await engine.close()
    assert (again.ids, again.versions) == (before.ids, [0] * 8)
