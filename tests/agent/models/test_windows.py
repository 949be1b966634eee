"""What is known of models' windows."""

import pytest

from agent.models.windows import known_window, ollama_window, window_of


@pytest.mark.parametrize(
    ("model", "tokens"),
    [("gpt-4", 8192), ("gpt-4o-mini", 128_000), ("openai/GPT-5-mini", 400_000), ("nobody-7b", None)],
)
def test_hosted_models_by_their_name(model: str, tokens: int | None) -> None:
    assert known_window(model) == tokens


@pytest.mark.parametrize(
    "entry",
    [
        {"max_model_len": 8192},
        {"context_length": 8192},
        {"meta": {"n_ctx_train": 131_072, "n_ctx": 8192}},
        {"top_provider": {"context_length": 8192}},
        {"max_context_length": 131_072, "loaded_context_length": 8192},
    ],
)
def test_the_fields_that_endpoints_use(entry: dict[str, object]) -> None:
    assert window_of(entry) == 8192


def test_fields_that_say_nothing() -> None:
    assert window_of({"context_length": "8192", "max_model_len": True, "meta": None}) is None


def test_ollama_names_a_model_with_and_without_its_tag() -> None:
    running = {"models": [{"name": "llama3:latest", "context_length": 4096}]}
    assert ollama_window(running, "llama3:latest") == ollama_window(running, "llama3") == 4096
    assert ollama_window(running, "qwen3") is ollama_window({}, "llama3") is ollama_window(None, "x") is None
