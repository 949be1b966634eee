"""From names to clients, and the model that is taken when nobody names one."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from agent.events import Event
from agent.models import open_model
from agent.models.catalog import default_model
from agent.models.chat_completions import ChatCompletions
from agent.models.client import ModelClient, ModelError, Request
from agent.models.recorded import RecordedModel
from agent.models.settings import ModelSettings
from tests.support.scripted_model import ScriptedModel

NOWHERE: Mapping[str, str] = {}


def opened(name: str, models: Mapping[str, ModelSettings] | None = None, **environ: str) -> ModelClient:
    return open_model(name, models=models or {}, cache_dir=Path("/nonexistent"), environ=environ)


def chat(name: str, models: Mapping[str, ModelSettings] | None = None, **environ: str) -> ChatCompletions:
    client = opened(name, models, **environ)
    assert isinstance(client, ChatCompletions)
    return client


def test_openai_models_use_the_environment() -> None:
    plain = chat("openai:gpt-5", OPENAI_API_KEY="k")
    assert (plain.endpoint.base_url, plain.endpoint.key) == ("https://api.openai.com/v1", "k")
    assert (plain.name, plain.context_window, plain.profile, plain.policy) == (
        "openai:gpt-5",
        400_000,
        "full",
        None,
    )
    other = chat("openai:m", OPENAI_BASE_URL="http://127.0.0.1:1/v1/", OPENAI_API_KEY="k")
    assert (other.endpoint.base_url, other.endpoint.key) == ("http://127.0.0.1:1/v1", "k")


def test_a_table_wins_over_a_name_that_looks_like_a_kind() -> None:
    models = {"local": ModelSettings(model="mine", base_url="http://127.0.0.1:9/v1")}
    assert chat("local", models).settings.model == "mine"


def test_the_key_of_openai_goes_to_no_other_address() -> None:
    models = {
        "other": ModelSettings(model="m", base_url="https://models.example/v1"),
        "named": ModelSettings(model="m", base_url="https://models.example/v1", api_key_env="OTHER_KEY"),
        "same": ModelSettings(model="m", base_url="https://mine.example/v1/"),
    }
    environ: dict[str, Any] = {
        "OPENAI_API_KEY": "k",
        "OTHER_KEY": "o",
        "OPENAI_BASE_URL": "https://mine.example/v1",
    }
    assert chat("other", models, **environ).endpoint.key is None
    assert chat("named", models, **environ).endpoint.key == "o"
    assert chat("same", models, **environ).endpoint.key == "k"
    assert chat("openai:gpt-5", **environ).endpoint.key == "k"


@pytest.mark.parametrize(
    ("name", "base_url"),
    [("ollama:qwen3:8b", "http://127.0.0.1:11434/v1"), ("lmstudio:m", "http://127.0.0.1:1234/v1")],
)
def test_servers_on_this_machine_have_their_usual_address(name: str, base_url: str) -> None:
    client = chat(name, OPENAI_API_KEY="k", OPENAI_BASE_URL="https://mine.example/v1")
    assert (client.endpoint.base_url, client.endpoint.key) == (base_url, None)
    assert client.settings.model == name.split(":", 1)[1]


@pytest.mark.case("agent-30")
async def test_a_model_without_its_key_opens_and_fails_only_when_asked() -> None:
    client = chat("openai:gpt-5")
    with pytest.raises(ModelError, match=r"OPENAI_API_KEY is not set.*or choose another model"):
        async for _ in client.sample(Request("s", [{"role": "user", "content": "x"}], [])):
            pass
    await client.close()


@pytest.mark.parametrize("name", ["gpt-5", "openai:", "recorded:", "", "anthropic:claude"])
def test_an_unknown_name_lists_what_there_is(name: str) -> None:
    models = {"big": ModelSettings(model="b"), "small": ModelSettings(model="s")}
    with pytest.raises(ModelError, match=r"big, small.*local\[:PATH\], openai:MODEL.*recorded:SESSION"):
        opened(name, models)


def test_a_table_without_a_model_says_so() -> None:
    with pytest.raises(ModelError, match=r"\[models\.big\] does not say which model"):
        opened("big", {"big": ModelSettings()})


def test_recorded_needs_a_store() -> None:
    async def load(session: str) -> Sequence[Event]:
        return []

    with pytest.raises(ModelError, match="store"):
        opened("recorded:01ABC")
    client = open_model("recorded:01ABC", models={}, cache_dir=Path("/nonexistent"), load_events=load)
    assert isinstance(client, RecordedModel) and client.name == "recorded:01ABC"


def test_settings_refuse_what_they_do_not_know() -> None:
    with pytest.raises(ValidationError, match="api_key"):
        ModelSettings.model_validate({"model": "m", "api_key": "sk-123"})
    with pytest.raises(ValidationError, match="provider"):
        ModelSettings.model_validate({"model": "m", "provider": "nobody"})
    prices = ModelSettings.model_validate({"price": {"input": 1.0, "output": 2.0}})
    assert prices.price is not None and prices.price.cached is None


async def test_the_first_configured_model_is_the_default() -> None:
    models = {"mine": ModelSettings(model="m"), "other": ModelSettings(model="o")}
    found = await default_model(models, environ={"OPENAI_API_KEY": "k"}, addresses=NOWHERE)
    assert (found.name, "mine" in found.reason) == ("mine", True)


async def test_then_the_endpoint_of_the_environment() -> None:
    with ScriptedModel(["x"], model="served-7b") as model:
        found = await default_model({}, environ={"OPENAI_BASE_URL": model.base_url}, addresses=NOWHERE)
    assert found.name == "openai:served-7b"
    found = await default_model({}, environ={"OPENAI_API_KEY": "k"}, addresses=NOWHERE)
    assert found.name == "openai:gpt-5"


async def test_an_endpoint_of_the_environment_that_is_not_there() -> None:
    with pytest.raises(ModelError, match="--model openai:MODEL"):
        await default_model({}, environ={"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}, addresses=NOWHERE)


async def test_then_a_server_on_this_machine_and_last_the_embedded_model() -> None:
    with ScriptedModel(["x"], model="found") as model:
        found = await default_model({}, environ={}, addresses={"vllm": model.base_url})
        assert (found.name, model.base_url in found.reason) == ("vllm:found", True)
    found = await default_model({}, environ={}, addresses={"ollama": "http://127.0.0.1:9/v1"})
    assert found.name == "local" and "no model server" in found.reason


def test_importing_models_imports_neither_the_sdk_nor_torch() -> None:
    program = (
        "import sys, agent.models, agent.models.catalog\n"
        "agent.models.open_model('openai:x', models={}, cache_dir=None)\n"
        "print(*sorted({m.split('.')[0] for m in sys.modules}))"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert {"agent", "pydantic"} <= loaded
    assert not loaded & {"openai", "httpx", "httpx2", "anyio", "torch", "transformers"}
