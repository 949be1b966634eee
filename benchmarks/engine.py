"""The torch engine on the small decoder: shared passes, prefixes, and `generate` of transformers beside it.

    python -m benchmarks.engine [--quick] [--json] [--only GROUP]

The decoder is dense: 4 layers of 128, 2,048 ids, 1 million weights (what practice on two cores can train), in
fp32 on one thread. Times are processor seconds of the whole process.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from agent.engine.decoder import Decoder
from agent.engine.decoder_config import DecoderConfig
from agent.engine.protocol import Completion, Job, Sampling
from agent.engine.scheduler import EngineSettings
from agent.engine.torch_engine import TorchEngine
from benchmarks.measure import Budget, Group, Measure, main

SIZES = DecoderConfig(2048)
SESSIONS, PROMPT, NEW = 16, 64, 48

TOGETHER = Budget("16 sessions in each pass ÷ one alone, tokens for each CPU-s", "×", 4, most=False)
AGAINST_ONE = Budget("one session ÷ `generate` of transformers, tokens for each CPU-s", "×", 1, most=False)
AGAINST_MANY = Budget(
    "16 sessions ÷ `generate` with a batch of 16, tokens for each CPU-s", "×", 0.8, most=False
)
EQUAL = Budget("ids that differ from those of `generate`", "ids", 0)
NEXT_STEP = Budget("a step of 32 new ids after 2,048 known ones ÷ computing all of them", "share", 0.15)
AGAIN = Budget("ids of a known prefix that were computed again", "ids", 0)


def prompt(seed: int, length: int = PROMPT) -> list[int]:
    source = torch.Generator().manual_seed(seed)
    return torch.randint(0, SIZES.vocab_size, (length,), generator=source).tolist()


def made(folder: str) -> Path:
    Decoder.fresh(SIZES, 1, 0.2).save(Path(folder))
    return Path(folder)


async def opened(folder: Path, cache: int = 0) -> TorchEngine:
    engine = TorchEngine(folder, settings=EngineSettings(threads=1, rows=SESSIONS, cache_bytes=cache))
    await engine.start()
    return engine


async def throughput(quick: bool) -> Iterable[Measure]:
    from transformers import AutoModelForCausalLM

    greedy = Sampling(temperature=0, max_tokens=NEW)
    with tempfile.TemporaryDirectory() as folder:
        engine = await opened(made(folder))
        theirs: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

        async def ours(count: int) -> tuple[float, list[list[int]]]:
            began = time.process_time()
            jobs = [engine.generate(Job(str(n), prompt(n), greedy)) for n in range(count)]
            drawn: list[Completion] = await asyncio.gather(*jobs)
            return time.process_time() - began, [one.ids for one in drawn]

        def generated(count: int) -> tuple[float, list[list[int]]]:
            ids = torch.tensor([prompt(n) for n in range(count)])
            options: dict[str, Any] = {"do_sample": False, "max_new_tokens": NEW, "min_new_tokens": NEW}
            began = time.process_time()
            with torch.inference_mode():
                whole = theirs.generate(ids, attention_mask=torch.ones_like(ids), pad_token_id=0, **options)
            return time.process_time() - began, whole[:, PROMPT:].tolist()

        torch.set_num_threads(1)
        await ours(1)
        generated(1)
        times: dict[str, list[float]] = {"one": [], "many": [], "their one": [], "their many": []}
        differ = 0
        for _ in range(
            2 if quick else 5
        ):  # side by side: the machine is as busy for the one as for the other
            for name, count in (("one", 1), ("many", SESSIONS)):
                mine, ids = await ours(count)
                other, their_ids = generated(count)
                times[name].append(mine)
                times[f"their {name}"].append(other)
                differ += sum(
                    a != b for x, y in zip(ids, their_ids, strict=True) for a, b in zip(x, y, strict=True)
                )
        await engine.close()
    rate = {name: NEW * (SESSIONS if "many" in name else 1) / min(found) for name, found in times.items()}
    detail = f"{rate['many']:,.0f} and {rate['one']:,.0f}"
    return [
        TOGETHER.of(rate["many"] / rate["one"], detail),
        AGAINST_ONE.of(rate["one"] / rate["their one"], f"theirs {rate['their one']:,.0f}"),
        AGAINST_MANY.of(rate["many"] / rate["their many"], f"theirs {rate['their many']:,.0f}"),
        EQUAL.of(differ),
    ]


async def prefixes(quick: bool) -> Iterable[Measure]:
    known, new = prompt(1, 2048), prompt(2, 32)
    one = Sampling(temperature=0, max_tokens=1)
    with tempfile.TemporaryDirectory() as folder:
        engine = await opened(made(folder), 64 << 20)
        whole: list[float] = []
        steps: list[float] = []
        again = 0
        for turn in range(2 if quick else 4):
            began = time.process_time()
            await engine.generate(Job(f"a{turn}", [turn, *known], one))
            whole.append(time.process_time() - began)
            began = time.process_time()
            step = await engine.generate(Job(f"a{turn}", [turn, *known, *new], one))
            steps.append(time.process_time() - began)
            again += len(known) + 1 - step.cached
        await engine.close()
    share = min(steps) / min(whole)
    return [
        NEXT_STEP.of(share, f"{1000 * min(steps):.0f} of {1000 * min(whole):.0f} CPU-ms"),
        AGAIN.of(again),
    ]


GROUPS = {
    "throughput": Group(throughput, (TOGETHER, AGAINST_ONE, AGAINST_MANY, EQUAL)),
    "prefixes": Group(prefixes, (NEXT_STEP, AGAIN)),
}

if __name__ == "__main__":
    sys.exit(main(GROUPS, __doc__))
