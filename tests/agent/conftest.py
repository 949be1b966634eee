"""The embedded model, converted once for all tests, and tiny models of the same kind."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.engine.weights import provide
from agent.rendering.codec import Codec
from tests.support.scripted_model import ScriptedModel

os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(scope="session")
def model_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder that holds the converted model: `ETUDE_CACHE` where set, else one for this run."""
    if given := os.environ.get("ETUDE_CACHE"):
        cache = Path(given)
    else:
        base = tmp_path_factory.getbasetemp()
        cache = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "etude-cache"
    provide(cache, lambda message: None)
    return cache


@pytest.fixture(scope="session")
def folder(model_cache: Path) -> Path:
    """The converted embedded model."""
    return provide(model_cache, lambda message: None)


@pytest.fixture(scope="session")
def codec(folder: Path) -> Codec:
    return Codec(folder / "tokenizer.json")


@pytest.fixture(scope="session")
def save_tiny() -> Callable[[Path, int], None]:
    """Writes a Llama of two layers with random weights: (folder, seed)."""
    return _save_tiny


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Path:
    """Such a Llama with the embedded model's tokenizer."""
    target = tmp_path_factory.mktemp("tiny")
    _save_tiny(target, seed=0)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (target / name).write_bytes((folder / name).read_bytes())
    return target


def _save_tiny(target: Path, seed: int) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        eos_token_id=2,
        bos_token_id=1,
        pad_token_id=2,
        initializer_range=0.4,
    )
    LlamaForCausalLM(config).save_pretrained(target)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "a.py").write_text("one = 1\n")
    (folder / "b.py").write_text("two = 2\n")
    return folder


@pytest.fixture
def script() -> Iterator[Callable[..., ScriptedModel]]:
    with contextlib.ExitStack() as stack:
        yield lambda turns, **options: stack.enter_context(ScriptedModel(turns, **options))
