"""What every engine does: one suite, run against the in-process engine and against vLLM."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from agent.engine.decoder import Decoder
from agent.engine.decoder_config import DecoderConfig
from agent.engine.protocol import Completion, Engine, EngineError, Job, Sampling
from agent.engine.scheduler import EngineSettings
from agent.engine.torch_engine import TorchEngine
from agent.engine.vllm.engine import VllmEngine
from agent.engine.vllm.server import VllmSettings, vllm_python

pytestmark = [
    pytest.mark.local_model,
    pytest.mark.timeout(900),
]
PROMPT = [1, 50, 60, 70, 80]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two tiny mixtures of experts of one shape with different weights."""
    made = []
    for seed in (0, 1):
        target = tmp_path_factory.mktemp("mixture")
        config = DecoderConfig(
            512, layers=2, intermediate=128, experts=8, top_k=2, expert_intermediate=64, eos=1
        )
        Decoder.fresh(config, seed, 0.1).save(target)
        words = Tokenizer(models.WordLevel({f"w{id}": id for id in range(512)}, unk_token="w0"))
        PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0", eos_token="w1").save_pretrained(
            target
        )
        made.append(target)
    return made


@pytest.fixture(params=["torch", "vllm"])
async def engine(
    request: pytest.FixtureRequest, folders: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Engine]:
    made: TorchEngine | VllmEngine
    if request.param == "torch":
        made = TorchEngine(folders[0], 3, EngineSettings(threads=1))
    else:
        python = vllm_python()
        if python is None:
            pytest.skip("vLLM is not installed: run `make vllm` or set ETUDE_VLLM_PYTHON")
        log = tmp_path_factory.mktemp("vllm") / "server.log"
        made = VllmEngine(folders[0], VllmSettings(python, log), 3)
    await made.start()
    yield made
    await made.close()


def recomputed(folder: Path, drawn: Completion, temperature: float) -> tuple[np.ndarray, np.ndarray]:
    """Log-probs and sorted experts of a completion, from one pass over everything."""
    ids = torch.tensor([[*PROMPT, *drawn.ids]])
    with torch.inference_mode():
        out = Decoder.from_folder(folder)(ids)
    steps = (out.logits[0, len(PROMPT) - 1 : -1] / temperature).log_softmax(-1)
    assert out.routes is not None
    known = steps.gather(1, ids[0, len(PROMPT) :, None])[:, 0]
    return known.numpy(), out.routes[0, :-1].sort(-1).values.numpy()


async def test_logprobs_and_routes_are_the_policys_own(engine: Engine, folders: list[Path]) -> None:
    off = []
    for sampling, temperature in (
        (Sampling(0.7, max_tokens=40, seed=1), 0.7),
        (Sampling(1.5, top_p=0.6, max_tokens=40, seed=2), 1.5),
        (Sampling(0, max_tokens=40), 1.0),
    ):
        drawn = await engine.generate(Job("a", PROMPT, sampling))
        known, experts = recomputed(folders[0], drawn, temperature)
        off.append(np.abs(known - drawn.logprobs))
        assert set(drawn.versions) == {3}
        assert drawn.routes is not None and drawn.routes.dtype == np.int16
        seen = drawn.routes[:, 0, 0] >= 0
        assert seen[-39:].all()
        assert (np.sort(drawn.routes, -1)[seen] == experts[seen]).all()
    every = np.concatenate(off)
    print(f"{type(engine).__name__}: p99 {np.quantile(every, 0.99):.1e}, max {every.max():.1e}")
    assert every.max() < 1e-4


async def test_ends_and_scores(engine: Engine, folders: list[Path]) -> None:
    free = await engine.generate(Job("a", PROMPT, Sampling(0, max_tokens=6)))
    assert (free.finish_reason, len(free.ids)) == ("length", 6)
    end = Sampling(0, max_tokens=6, eos_ids=frozenset([free.ids[0]]))
    ended = await engine.generate(Job("a", PROMPT, end))
    assert (ended.finish_reason, ended.ids) == ("eos", free.ids[:1])
    seen: list[int] = []
    stopped = await engine.generate(
        Job("a", PROMPT, Sampling(0, max_tokens=6)), lambda id, _: seen.append(id) or len(seen) == 2
    )
    assert (stopped.finish_reason, stopped.ids) == ("stop", free.ids[:2])
    late = await engine.generate(Job("a", PROMPT, Sampling(max_tokens=4000), deadline_s=0.5))
    assert late.finish_reason == "deadline"
    if "score" in engine.capabilities:
        scores = await engine.score("a", PROMPT, [free.ids, []])
        assert scores == pytest.approx([sum(free.logprobs), 0.0], abs=1e-3)


async def test_weights_change_amid_an_answer(engine: Engine, folders: list[Path], tmp_path: Path) -> None:
    """Last in the file: the engine keeps the new weights."""
    with pytest.raises(EngineError):
        await engine.load(tmp_path, 4)
    came, count, loop = asyncio.Event(), 0, asyncio.get_running_loop()

    def on_token(id: int, logprob: float) -> bool:
        nonlocal count
        count += 1
        if count == 20:
            loop.call_soon_threadsafe(came.set)
        return False

    job = Job("b", PROMPT, Sampling(1, max_tokens=2000, seed=1))
    running = asyncio.create_task(engine.generate(job, on_token))
    await came.wait()
    await engine.load(folders[1], 4)
    drawn = await running
    assert drawn.versions == sorted(drawn.versions)
    old = drawn.versions.count(3)
    assert 20 <= old < len(drawn.ids) == 2000
    before, _ = recomputed(folders[0], drawn, 1)
    after, _ = recomputed(folders[1], drawn, 1)
    assert before[:old] == pytest.approx(drawn.logprobs[:old], abs=1e-4)
    assert after[old:] == pytest.approx(drawn.logprobs[old:], abs=1e-4)
    assert before[old:] != pytest.approx(drawn.logprobs[old:], abs=1e-2)
