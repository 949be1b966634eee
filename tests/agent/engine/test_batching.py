"""Many jobs at once: each gets what it would get alone, whatever comes and goes beside it."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import (
    AutoModelForCausalLM,
    DynamicCache,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
)

from agent.engine.decoder import Decoder
from agent.engine.decoder_config import DecoderConfig
from agent.engine.protocol import Completion, EngineError, Job, Sampling
from agent.engine.scheduler import EngineSettings
from agent.engine.torch_engine import TorchEngine

VOCABULARY = 512
DENSE = DecoderConfig(VOCABULARY, hidden=64, layers=3, intermediate=128)
SPARSE = replace(DENSE, experts=8, top_k=2, expert_intermediate=64, tied=False)
SIZES: dict[str, Any] = {"vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 2}
HEADS: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128}


def family(name: str, folder: Path, seed: int = 0) -> Path:
    """A tiny model of a family, with random weights."""
    torch.manual_seed(seed)
    match name:
        case "dense":
            Decoder.fresh(DENSE, seed, 0.2).save(folder)
        case "sparse":
            Decoder.fresh(SPARSE, seed, 0.2).save(folder)
        case "llama":
            config = LlamaConfig(**SIZES, **HEADS, initializer_range=0.2)
            LlamaForCausalLM(config).save_pretrained(folder)
        case "mixtral":
            routed = MixtralConfig(**SIZES, **HEADS, num_local_experts=6, num_experts_per_tok=2)
            MixtralForCausalLM(routed).save_pretrained(folder)
        case "gpt2":
            sizes = GPT2Config(vocab_size=VOCABULARY, n_positions=2048, n_embd=64, n_layer=2, n_head=4)
            GPT2LMHeadModel(sizes).save_pretrained(folder)
        case _:
            windowed = MistralConfig(**SIZES, **HEADS, sliding_window=8, initializer_range=0.2)
            MistralForCausalLM(windowed).save_pretrained(folder)
    return folder


@pytest.fixture(params=["dense", "sparse", "llama", "mixtral", "gpt2", "windowed"])
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[TorchEngine]:
    engine = TorchEngine(family(request.param, tmp_path), 1, EngineSettings(threads=1, rows=6))
    await engine.start()
    yield engine
    await engine.close()


def prompt(seed: int, length: int) -> list[int]:
    return torch.randint(0, VOCABULARY, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def jobs(count: int) -> list[Job]:
    return [
        Job(
            f"job {n}",
            prompt(n, 3 + 37 * (n % 5)),
            Sampling(temperature=0.5 * (n % 3), max_tokens=4 + 5 * (n % 4), seed=n),
        )
        for n in range(count)
    ]


def alike(one: Completion, other: Completion) -> None:
    assert one.ids == other.ids
    assert one.finish_reason == other.finish_reason
    assert one.logprobs == pytest.approx(other.logprobs, abs=2e-5)
    assert (one.routes is None) == (other.routes is None)
    if one.routes is not None and other.routes is not None:
        assert one.routes.shape == other.routes.shape
        assert (one.routes == other.routes).mean() > 0.99  # near-ties of a router may fall either way


async def test_together_they_get_what_each_gets_alone(engine: TorchEngine) -> None:
    alone = [await engine.generate(replace(job, key=f"alone {job.key}")) for job in jobs(12)]
    await engine.load(engine.path, 1)
    together = await asyncio.gather(*(engine.generate(job) for job in jobs(12)))
    for one, other in zip(alone, together, strict=True):
        alike(one, other)


@pytest.mark.parametrize("engine", ["sparse", "mixtral"], indirect=True)
async def test_the_experts_of_every_consumed_id_are_said(engine: TorchEngine) -> None:
    job = Job("a", prompt(1, 30), Sampling(temperature=0, max_tokens=8))
    first = await engine.generate(job)
    again = await engine.generate(replace(job, ids=[*job.ids, *first.ids, 5]))
    assert first.routes is not None and again.routes is not None and again.cached == 37
    layers = first.routes.shape[1]
    assert first.routes.shape == (37, layers, 2) and again.routes.shape == (46, layers, 2)
    assert (again.routes[:37] == first.routes).all()
    assert "routes" in engine.capabilities
    with torch.inference_mode():
        theirs = AutoModelForCausalLM.from_pretrained(engine.path, dtype=torch.float32).eval()
        output = theirs(torch.tensor([[*job.ids, *first.ids]]), output_router_logits=True)
    expected = torch.stack([one.topk(2, -1).indices for one in output.router_logits], 1)[:37]
    found = torch.tensor(first.routes)
    assert (found.sort(-1).values == expected.sort(-1).values).float().mean() > 0.99


async def test_a_prompt_longer_than_a_piece_goes_on_beside_the_others(engine: TorchEngine) -> None:
    long = Job("long", prompt(99, 1200), Sampling(temperature=0, max_tokens=3))
    order: list[str] = []

    async def run(job: Job) -> Completion:
        done = await engine.generate(job)
        order.append(job.key)
        return done

    short = Job("short", prompt(5, 4), Sampling(temperature=0, max_tokens=3))
    both = await asyncio.gather(run(long), run(short))
    assert order == ["short", "long"]
    await engine.load(engine.path, 1)
    for one, job in zip(both, (long, short), strict=True):
        alike(one, await engine.generate(job))


async def test_what_is_cached_answers_as_what_is_computed(engine: TorchEngine) -> None:
    first = await engine.generate(Job("a", prompt(1, 40), Sampling(temperature=0, max_tokens=9)))
    longer = [*prompt(1, 40), *first.ids, *prompt(2, 7)]
    greedy = Sampling(temperature=0, max_tokens=6)
    cached = await engine.generate(Job("a", longer, greedy))
    assert cached.cached == 48
    await engine.load(engine.path, 1)
    fresh = await engine.generate(Job("a", longer, greedy))
    assert fresh.cached == 0
    alike(cached, fresh)


async def test_a_listener_that_raises_ends_its_own_job_only(engine: TorchEngine) -> None:
    def broken(id: int, logprob: float) -> bool:
        raise ValueError("a listener's defect")

    def late(id: int, logprob: float) -> bool:
        seen.append(id)
        return broken(id, logprob) if len(seen) == 3 else False

    seen: list[int] = []
    good = Job("good", prompt(1, 5), Sampling(temperature=0, max_tokens=12))
    bad, later = (
        Job(name, prompt(2, 5), Sampling(temperature=0, max_tokens=12)) for name in ("bad", "later")
    )
    found = await asyncio.gather(
        engine.generate(bad, broken),
        engine.generate(later, late),
        engine.generate(good),
        return_exceptions=True,
    )
    assert [type(one) for one in found] == [EngineError, EngineError, Completion]
    assert "a listener's defect" in str(found[0])
    assert len((await engine.generate(good)).ids) == 12


async def test_a_deadline_ends_a_job_with_what_it_has(engine: TorchEngine) -> None:
    job = Job("a", prompt(1, 5), Sampling(max_tokens=100_000), deadline_s=0.2)
    late = await engine.generate(job)
    assert late.finish_reason == "deadline"
    assert 0 < len(late.ids) < 100_000


@pytest.mark.parametrize("engine", ["dense", "sparse", "llama"], indirect=True)
@pytest.mark.parametrize("cache", ["keep", "recompute"])
async def test_weights_are_exchanged_between_two_tokens(
    engine: TorchEngine, tmp_path: Path, cache: Any, request: pytest.FixtureRequest
) -> None:
    first, name = engine.path, request.node.callspec.params["engine"]
    second = family(name, tmp_path / "second", 7)
    came = asyncio.Event()
    loop = asyncio.get_running_loop()
    started = [Job(f"s{n}", prompt(n, 20 + n), Sampling(max_tokens=60, seed=n)) for n in range(3)]

    def noticed(id: int, logprob: float) -> bool:
        loop.call_soon_threadsafe(came.set)
        return False

    running = [asyncio.create_task(engine.generate(job, noticed)) for job in started]
    await came.wait()
    await engine.load(second, 2, cache)
    drawn = await asyncio.gather(*running)
    assert {version for one in drawn for version in one.versions} == {1, 2}
    for job, one in zip(started, drawn, strict=True):
        assert one.versions == sorted(one.versions)
        assert len(one.ids) == 60
        networks = {1: first, 2: second}
        assert one.logprobs == pytest.approx(retraced(networks, job.ids, one, cache), abs=1e-4)
    after = await engine.generate(Job("s0", [*started[0].ids, *drawn[0].ids, 1], Sampling(max_tokens=2)))
    assert after.cached == (0 if cache == "keep" else len(started[0].ids) + 59)
    assert after.versions == [2, 2]


def retraced(folders: dict[int, Path], ids: Sequence[int], one: Completion, cache: str) -> list[float]:
    """Log-probs by plain passes of transformers: of everything by the version of each token, or, where keys
    and values were kept, of each version's tokens after what the versions before it left."""
    models = {v: AutoModelForCausalLM.from_pretrained(path).eval() for v, path in folders.items()}
    everything = torch.tensor([[*ids, *one.ids]])
    rows = torch.empty(len(one.ids), VOCABULARY)
    start = len(ids)
    with torch.inference_mode():
        if cache == "recompute":
            for version, model in models.items():
                logits = model(everything).logits[0, start - 1 : -1]
                mine = [index for index, drawn in enumerate(one.versions) if drawn == version]
                rows[mine] = logits[mine]
        else:
            held, at = DynamicCache(), 0
            for version, group in itertools.groupby(one.versions):
                # The id before a version's first token is consumed by that version.
                end = at + len(list(group))
                before = 0 if at == 0 else start + at - 1
                logits = models[version](everything[:, before : start + end - 1], past_key_values=held).logits
                rows[at:end] = logits[0, -(end - at) :]
                at = end
    steps = torch.log_softmax(rows.float(), dim=-1)
    return steps.gather(1, torch.tensor(one.ids)[:, None])[:, 0].tolist()


async def test_a_pause_stands_still_and_goes_on(engine: TorchEngine) -> None:
    seen: list[int] = []

    def note(id: int, logprob: float) -> bool:
        seen.append(id)
        return False

    job = Job("a", prompt(3, 10), Sampling(max_tokens=300, seed=3))
    running = asyncio.create_task(engine.generate(job, note))
    while not seen:
        await asyncio.sleep(0.002)
    await engine.pause()
    at = len(seen)
    waiting = asyncio.create_task(engine.generate(Job("b", prompt(4, 5), Sampling(max_tokens=2))))
    await asyncio.sleep(0.15)
    assert len(seen) == at and not waiting.done()
    await engine.resume()
    done, _ = await asyncio.gather(running, waiting)
    await engine.load(engine.path, 1)
    alike(done, await engine.generate(job))


async def test_a_pause_may_wait_for_the_running_or_end_them(engine: TorchEngine) -> None:
    running = [
        asyncio.create_task(engine.generate(Job(str(n), prompt(n, 5), Sampling(max_tokens=40, seed=n))))
        for n in range(3)
    ]
    await asyncio.sleep(0.02)
    await engine.pause("wait")
    assert [len((await task).ids) for task in running] == [40] * 3
    blocked = asyncio.create_task(engine.generate(Job("x", prompt(1, 5), Sampling(max_tokens=100_000))))
    await asyncio.sleep(0.05)
    assert not blocked.done()
    await engine.resume()
    await asyncio.sleep(0.1)
    await engine.pause("abort")
    ended = await blocked
    assert ended.finish_reason == "aborted" and 0 < len(ended.ids) < 100_000
    await engine.resume()


async def test_bad_weights_are_refused_and_the_old_ones_go_on(engine: TorchEngine, tmp_path: Path) -> None:
    job = Job("a", prompt(3, 10), Sampling(temperature=0, max_tokens=200))
    running = asyncio.create_task(engine.generate(job))
    await asyncio.sleep(0.05)
    other = DecoderConfig(VOCABULARY, hidden=32, layers=1, intermediate=64)
    Decoder.fresh(other).save(tmp_path / "other")
    (tmp_path / "empty").mkdir()
    for name, message in (("other", "other sizes"), ("empty", "cannot be loaded")):
        with pytest.raises(EngineError, match=message):
            await engine.load(tmp_path / name, 9)
    assert set((await running).versions) == {1} and engine.version == 1


class Schedule:
    """One engine for all examples, and what each job gets alone."""

    def __init__(self, folder: Path) -> None:
        self.engine = TorchEngine(family("sparse", folder), 1, EngineSettings(threads=1, rows=4))
        self.alone: list[Completion] = []

    async def prepare(self) -> None:
        await self.engine.start()
        self.alone = [await self.engine.generate(replace(job, key=f"alone {job.key}")) for job in jobs(10)]

    async def play(self, moves: list[tuple[str, int]]) -> None:
        engine, tasks = self.engine, dict[int, asyncio.Task[Completion]]()
        await engine.load(engine.path, engine.version)
        for move, number in moves:
            if move == "start" and number not in tasks:
                tasks[number] = asyncio.create_task(engine.generate(jobs(10)[number]))
            elif move == "cancel" and number in tasks:
                tasks[number].cancel()
            elif move == "pause":
                await engine.pause()
            elif move == "reload":
                await engine.load(engine.path, engine.version, "keep" if number % 2 else "recompute")
            else:
                await asyncio.sleep(0.002 * number)
                await engine.resume()
        await engine.resume()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        for number, task in tasks.items():
            if not task.cancelled():
                alike(task.result(), self.alone[number])


MOVES = st.lists(
    st.tuples(
        st.sampled_from(["start", "start", "start", "cancel", "pause", "reload", "go"]), st.integers(0, 9)
    ),
    max_size=25,
)


def test_no_schedule_changes_what_a_job_gets(tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        schedule = Schedule(tmp_path)
        runner.run(schedule.prepare())

        @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(moves=MOVES)
        def check(moves: list[tuple[str, int]]) -> None:
            runner.run(schedule.play(moves))

        try:
            check()
        finally:
            runner.run(schedule.engine.close())
