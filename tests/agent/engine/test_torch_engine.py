"""The engine on a real (tiny) model: exact log-probs, cached or not, one stream at a time, cancellable."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from agent.engine.protocol import Completion, EngineBusy, EngineError, Job, Sampling
from agent.engine.scheduler import EngineSettings
from agent.engine.torch_engine import TorchEngine

pytestmark = pytest.mark.local_model
PROMPT = [1, 500, 600, 700, 800, 900, 1000, 1100]


@pytest.fixture
async def engine(tiny: Path) -> AsyncIterator[TorchEngine]:
    engine = TorchEngine(tiny, version=3, settings=EngineSettings(threads=1, rows=1, waiting=2))
    await engine.start()
    yield engine
    await engine.close()


def recomputed(
    folder: Path, prompt: Sequence[int], completion: Completion, temperature: float
) -> list[float]:
    """Log-probs of a completion from one forward pass over everything."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        logits = model(torch.tensor([[*prompt, *completion.ids]])).logits[0, len(prompt) - 1 : -1]
    steps = torch.log_softmax(logits.float() / temperature, dim=-1)
    return steps.gather(1, torch.tensor(completion.ids)[:, None])[:, 0].tolist()


@pytest.mark.parametrize(
    ("sampling", "temperature"),
    [
        (Sampling(temperature=0.7, max_tokens=40, seed=1), 0.7),
        (Sampling(temperature=1.5, top_p=0.6, max_tokens=40, seed=2), 1.5),
        (Sampling(temperature=0, max_tokens=40), 1.0),
    ],
)
async def test_logprobs_are_those_of_a_full_forward_pass(
    engine: TorchEngine, tiny: Path, sampling: Sampling, temperature: float
) -> None:
    drawn = await engine.generate(Job("a", PROMPT, sampling))
    assert len(drawn.ids) == len(drawn.logprobs) == len(drawn.versions) == 40
    assert set(drawn.versions) == {3}
    assert drawn.logprobs == pytest.approx(recomputed(tiny, PROMPT, drawn, temperature), abs=1e-4)


async def test_cached_and_uncached_decoding_agree_and_the_count_is_true(engine: TorchEngine) -> None:
    greedy = Sampling(temperature=0, max_tokens=12)
    first = await engine.generate(Job("a", PROMPT, greedy))
    assert first.cached == 0
    longer = [*PROMPT, *first.ids, 55, 66, 77]
    cached = await engine.generate(Job("a", longer, greedy))
    # The last drawn id was never fed.
    assert cached.cached == len(PROMPT) + len(first.ids) - 1
    await engine.load(engine.path, engine.version)
    uncached = await engine.generate(Job("a", longer, greedy))
    assert uncached.cached == 0
    assert uncached.ids == cached.ids
    assert uncached.logprobs == pytest.approx(cached.logprobs, abs=1e-4)


async def test_a_session_may_go_back_and_another_may_share_its_beginning(engine: TorchEngine) -> None:
    greedy = Sampling(temperature=0, max_tokens=5)
    await engine.generate(Job("a", [*PROMPT, *range(2000, 2040)], greedy))
    other = await engine.generate(Job("b", [*PROMPT, 7, 8], greedy))
    assert other.cached == len(PROMPT)
    again = await engine.generate(Job("a", [*PROMPT, 9], greedy))
    assert again.cached == len(PROMPT)
    await engine.load(engine.path, engine.version)
    assert (await engine.generate(Job("c", [*PROMPT, 9], greedy))).logprobs == pytest.approx(
        again.logprobs, abs=1e-4
    )


async def test_an_opening_is_recorded_as_if_drawn(engine: TorchEngine) -> None:
    greedy = Sampling(temperature=0, max_tokens=12)
    free = await engine.generate(Job("a", PROMPT, greedy))
    given = await engine.generate(Job("b", PROMPT, greedy, opening=free.ids[:7]))
    assert given.ids == free.ids
    assert given.opening == 7
    assert given.logprobs == pytest.approx(free.logprobs, abs=1e-4)


async def test_a_seed_repeats_a_completion_and_its_absence_does_not(engine: TorchEngine) -> None:
    def job(seed: int | None) -> Job:
        return Job("a", PROMPT, Sampling(temperature=1.5, max_tokens=20, seed=seed))

    assert (await engine.generate(job(5))).ids == (await engine.generate(job(5))).ids
    assert (await engine.generate(job(None))).ids != (await engine.generate(job(None))).ids


async def test_ends(engine: TorchEngine) -> None:
    free = await engine.generate(Job("a", PROMPT, Sampling(temperature=0, max_tokens=6)))
    assert free.finish_reason == "length"
    end = free.ids[3]
    at_end = Sampling(temperature=0, max_tokens=6, eos_ids=frozenset([end]))
    ended = await engine.generate(Job("a", PROMPT, at_end))
    assert (ended.finish_reason, ended.ids[-1]) == ("eos", end)
    seen: list[int] = []

    def two(id: int, logprob: float) -> bool:
        seen.append(id)
        return len(seen) == 2

    stopped = await engine.generate(Job("a", PROMPT, Sampling(temperature=0, max_tokens=6)), two)
    assert (stopped.finish_reason, stopped.ids) == ("stop", seen)


async def test_branches_are_scored_like_sequences_of_their_own(engine: TorchEngine, tiny: Path) -> None:
    branches = [[10, 11, 12], [10, 11], [10, 20, 30, 40], [99], []]
    scores = await engine.score("s", PROMPT, branches)
    for branch, score in zip(branches, scores, strict=True):
        if branch:
            given = Completion(branch, [], [], "stop")
            assert score == pytest.approx(sum(recomputed(tiny, PROMPT, given, 1.0)), abs=1e-3)
    assert scores[-1] == 0.0
    # The tree left no trace in what is cached.
    after = await engine.generate(Job("s", [*PROMPT, 5], Sampling(temperature=0, max_tokens=4)))
    fresh = await engine.generate(Job("t", [1, 2, *PROMPT, 5], Sampling(temperature=0, max_tokens=1)))
    assert after.cached == len(PROMPT)
    assert fresh.cached == 1


async def test_a_cancelled_request_frees_the_engine_within_a_token(engine: TorchEngine) -> None:
    came = asyncio.Event()
    loop = asyncio.get_running_loop()
    count = 0

    def slow(id: int, logprob: float) -> bool:
        nonlocal count
        count += 1
        time.sleep(0.02)
        loop.call_soon_threadsafe(came.set)
        return False

    running = asyncio.create_task(engine.generate(Job("a", PROMPT, Sampling(max_tokens=400)), slow))
    await came.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    at_cancel = count
    await engine.generate(Job("b", PROMPT, Sampling(max_tokens=1)))
    assert count <= at_cancel + 1
    # What the cancelled request had computed is still of use.
    assert (await engine.generate(Job("a", [*PROMPT, 3], Sampling(max_tokens=1)))).cached >= len(PROMPT)


async def test_requests_wait_in_line_up_to_a_bound(engine: TorchEngine) -> None:
    order: list[str] = []

    async def run(name: str) -> None:
        await engine.generate(Job(name, PROMPT, Sampling(max_tokens=30)))
        order.append(name)

    tasks = [asyncio.create_task(run(name)) for name in "abc"]
    await asyncio.sleep(0)
    with pytest.raises(EngineBusy, match="wait for the local model"):
        await engine.generate(Job("d", PROMPT))
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == ["a", "c"]


async def test_other_weights_answer_under_their_version(
    engine: TorchEngine, tmp_path: Path, save_tiny: Callable[[Path, int], None]
) -> None:
    greedy = Sampling(temperature=0, max_tokens=8)
    before = await engine.generate(Job("a", PROMPT, greedy))
    save_tiny(tmp_path, 1)
    await engine.load(tmp_path, 4)
    after = await engine.generate(Job("a", PROMPT, greedy))
    assert engine.version == 4
    assert after.versions == [4] * 8
    assert after.cached == 0
    assert after.logprobs == pytest.approx(recomputed(tmp_path, PROMPT, after, 1.0), abs=1e-4)
    assert after.ids != before.ids


async def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    engine = TorchEngine(tmp_path / "none")
    with pytest.raises(EngineError, match="cannot be loaded"):
        await engine.start()
    await engine.close()


async def test_closing_ends_what_runs(tiny: Path) -> None:
    engine = TorchEngine(tiny)
    await engine.start()
    running = asyncio.create_task(engine.generate(Job("a", PROMPT, Sampling(max_tokens=400))))
    waiting = asyncio.create_task(engine.generate(Job("b", PROMPT, Sampling(max_tokens=400))))
    await asyncio.sleep(0.05)
    await engine.close()
    for task in (running, waiting):
        with pytest.raises(EngineError, match="closed"):
            await task
    with pytest.raises(EngineError, match="closed"):
        await engine.generate(Job("c", PROMPT))
