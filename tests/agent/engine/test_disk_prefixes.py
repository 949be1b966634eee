"""Lasting beginnings on disk: the next start need not compute them, and a broken file costs nothing else."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from agent.engine.decoder import Decoder
from agent.engine.decoder_config import DecoderConfig
from agent.engine.disk_prefixes import FILES
from agent.engine.protocol import Completion, Job, Sampling
from agent.engine.scheduler import EngineSettings
from agent.engine.torch_engine import TorchEngine

SPARSE = DecoderConfig(
    256, hidden=32, layers=2, heads=2, kv_heads=1, intermediate=64, experts=4, top_k=2, expert_intermediate=32
)
SYSTEM = [number * 7 % 256 for number in range(600)]
JOB = Job("a", [*SYSTEM, 1, 2, 3], Sampling(temperature=0, max_tokens=6), lasting=600)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    Decoder.fresh(SPARSE, 1, 0.2).save(tmp_path / "model")
    return tmp_path / "model"


async def started(model: Path, folder: Path | None, *jobs: Job) -> list[Completion]:
    """What a fresh engine answers to some jobs."""
    engine = TorchEngine(model, settings=EngineSettings(threads=1, lasting=folder))
    try:
        return [await engine.generate(job) for job in jobs]
    finally:
        await engine.close()


def same(one: Completion, other: Completion) -> None:
    assert one.ids == other.ids
    assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)
    assert one.routes is not None and other.routes is not None
    assert one.routes.shape == other.routes.shape and (one.routes == other.routes).mean() > 0.99


async def test_the_next_start_finds_what_the_last_one_computed(model: Path, tmp_path: Path) -> None:
    [alone] = await started(model, None, JOB)
    [first] = await started(model, tmp_path / "kept", JOB)
    [second] = await started(model, tmp_path / "kept", replace(JOB, ids=[*SYSTEM, 9, 8]))
    [third] = await started(model, tmp_path / "kept", JOB)
    assert (alone.cached, first.cached, second.cached, third.cached) == (0, 0, 600, 600)
    same(alone, first)
    same(alone, third)


async def test_other_weights_and_other_beginnings_find_nothing(model: Path, tmp_path: Path) -> None:
    await started(model, tmp_path / "kept", JOB)
    Decoder.fresh(SPARSE, 2, 0.2).save(tmp_path / "other")
    [other] = await started(tmp_path / "other", tmp_path / "kept", JOB)
    [begun] = await started(model, tmp_path / "kept", replace(JOB, ids=[5, *JOB.ids]))
    assert (other.cached, begun.cached) == (0, 0)


async def test_a_broken_file_is_computed_anew(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    [first] = await started(model, tmp_path / "kept", JOB)
    [path] = (tmp_path / "kept").iterdir()
    whole = path.read_bytes()
    for broken in (whole[:-100], whole[: len(whole) // 2] + b"\1" + whole[len(whole) // 2 + 1 :], b""):
        path.write_bytes(broken)
        with caplog.at_level(logging.WARNING):
            [again] = await started(model, tmp_path / "kept", JOB)
        assert "is left out" in caplog.text
        caplog.clear()
        assert again.cached == 0 and path.read_bytes() == whole
        same(first, again)


async def test_a_folder_that_cannot_be_written_is_no_obstacle(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("no folder")
    [drawn] = await started(model, tmp_path / "file" / "kept", JOB)
    assert len(drawn.ids) == 6 and "are not kept" in caplog.text


async def test_only_the_latest_beginnings_stay(model: Path, tmp_path: Path) -> None:
    jobs = [replace(JOB, key=str(n), ids=[n, *JOB.ids]) for n in range(FILES + 3)]
    await started(model, tmp_path / "kept", *jobs)
    assert len(list((tmp_path / "kept").iterdir())) == FILES
