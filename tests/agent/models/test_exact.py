"""Sessions on our own engine: the log alone gives back every log-prob."""

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM
from ulid import ULID

from agent import ask
from agent.engine.decoder import Decoder
from agent.engine.decoder_config import DecoderConfig
from agent.events import Event, SessionCreated, draft
from agent.log import MemoryLog
from agent.models.local import LocalModel
from agent.models.settings import ModelSettings
from agent.prompt_chain import resolve_ids
from agent.session import Session
from tools.sandbox.policy import SandboxPolicy
from tools.workspace import Workspace

pytestmark = pytest.mark.local_model
SESSIONS, TURNS = 8, 17
SIZES = {
    "hidden": 32,
    "layers": 2,
    "heads": 2,
    "kv_heads": 1,
    "intermediate": 64,
    "positions": 8192,
    "eos": 2,
}
MOE = {"experts": 8, "top_k": 2, "expert_intermediate": 32}


def policy(folder: Path, tokenizer: Path, seed: int, **sizes: Any) -> Path:
    vocabulary = json.loads((tokenizer / "config.json").read_text())["vocab_size"]
    Decoder.fresh(DecoderConfig(vocabulary, **SIZES, **sizes), seed, 0.3).save(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((tokenizer / name).read_bytes())
    return folder


async def talk(model: LocalModel, root: Path, number: int) -> MemoryLog:
    """Turns of a session; some are cancelled midway."""
    log = MemoryLog(str(ULID()), ())
    created = SessionCreated(
        workspace=str(root), user_id="local", model=model.name, mode="full", profile="compact"
    )
    await log.submit(draft("session.created", created))
    session = Session(log, log.events, Workspace(root, SandboxPolicy()), model, max_output=10, max_steps=2)
    try:
        for turn in range(TURNS):
            said = asyncio.create_task(_play(session, f"Question {turn} of {number}: what is in a.py?"))
            if (turn + number) % 9 == 4:
                await asyncio.sleep(0.03)
                session.cancel()
            await said
    finally:
        await session.close()
    return log


async def _play(session: Session, text: str) -> None:
    async for _ in ask(session, text):
        pass


@pytest.mark.parametrize("sizes", [{}, MOE], ids=["dense", "sparse"])
@pytest.mark.timeout(300)
async def test_the_log_alone_gives_back_every_log_prob(
    tmp_path: Path, folder: Path, sizes: dict[str, int]
) -> None:
    root = tmp_path / "repo"
    root.mkdir()
    (root / "a.py").write_text("one = 1\n")
    versions = {n: policy(tmp_path / f"v{n}", folder, n, **sizes) for n in range(3)}
    settings = ModelSettings(provider="local", temperature=0.8)
    model = LocalModel(versions[0], tmp_path / "cache", settings)
    try:
        await model.warm()
        talking = [asyncio.create_task(talk(model, root, number)) for number in range(SESSIONS)]
        for version in (1, 2):
            await asyncio.sleep(1.5)
            await model.load(versions[version], version)
        logs = await asyncio.gather(*talking)
    finally:
        await model.close()

    networks = {n: AutoModelForCausalLM.from_pretrained(path).eval() for n, path in versions.items()}
    gaps: list[float] = []
    turns, seen, extended = 0, set[int](), 0
    for log in logs:
        for event in log.events:
            if event.type == "generation":
                gaps += await _gaps(log, event, networks, bool(sizes))
                seen |= set(event.data["tokens"]["versions"])
                turns, extended = turns + 1, extended + (event.data["usage"]["cached"] > 0)
    worst, p99 = max(gaps), float(np.quantile(gaps, 0.99))
    print(f"{turns} generations, {len(gaps)} tokens, max {worst:.1e}, p99 {p99:.1e}, {extended} on a prefix")
    assert turns >= 100 and len(gaps) > 1000 and extended > turns / 2
    assert seen == {0, 1, 2}
    assert worst <= 1e-4 and p99 <= 1e-5


async def _gaps(log: MemoryLog, event: Event, networks: dict[int, Any], sparse: bool) -> list[float]:
    """What plain passes over the logged ids give, less what the log says, for each drawn id."""
    tokens = event.data["tokens"]
    prompt, drawn = await resolve_ids(tokens["prompt"], log.blob), tokens["completion"]
    assert len(prompt) == tokens["prompt_length"] and len(drawn) == len(tokens["logprobs"])
    if sparse:
        routes = np.load(io.BytesIO(await log.blob(tokens["routes"])))
        assert routes.shape == (len(prompt) + len(drawn) - 1, SIZES["layers"], MOE["top_k"])
        assert routes.min() >= 0 and routes.max() < MOE["experts"]
    everything, found = torch.tensor([[*prompt, *drawn]]), dict[int, list[float]]()
    for version in set(tokens["versions"]):
        with torch.inference_mode():
            logits = networks[version](everything, logits_to_keep=len(drawn) + 1).logits[0, :-1]
        steps = torch.log_softmax(logits.float() / event.data["sampling"]["temperature"], dim=-1)
        found[version] = steps.gather(1, torch.tensor(drawn)[:, None])[:, 0].tolist()
    return [
        abs(found[version][at] - logprob)
        for at, (version, logprob) in enumerate(zip(tokens["versions"], tokens["logprobs"], strict=True))
    ]
