"""How many tokens a model's window holds, when the settings do not say."""

from collections.abc import Mapping
from typing import Any, Final

DEFAULT: Final = 128_000
"""Assumed where neither the table nor the endpoint knows."""

OLLAMA_DEFAULT: Final = 4_096
"""What Ollama gives a model on most machines; longer prompts lose their start without a word."""

_KNOWN: Final[tuple[tuple[str, int], ...]] = (
    ("gpt-5", 400_000),
    ("gpt-4.1", 1_047_576),
    ("gpt-4o", 128_000),
    ("gpt-4-turbo", 128_000),
    ("gpt-4-32k", 32_768),
    ("gpt-4", 8_192),
    ("gpt-3.5-turbo", 16_385),
    ("gpt-oss", 131_072),
    ("o1", 200_000),
    ("o3", 200_000),
    ("o4-mini", 200_000),
    ("codex-mini", 200_000),
    ("claude", 200_000),
    ("gemini-1.5-pro", 2_097_152),
    ("gemini", 1_048_576),
    ("deepseek", 128_000),
    ("mistral-large", 128_000),
    ("codestral", 256_000),
    ("devstral", 128_000),
    ("grok-4-fast", 2_000_000),
    ("grok-code-fast", 256_000),
    ("grok-4", 256_000),
    ("grok-3", 131_072),
    ("kimi-k2", 262_144),
    ("glm-4.6", 200_000),
    ("glm-4", 128_000),
    ("qwen3-coder", 262_144),
)
"""Hosted models by the start of their name; the first that fits counts."""

_FIELDS: Final = (
    "max_model_len",
    "context_length",
    "context_window",
    "max_context_length",
    "n_ctx",
    "max_input_tokens",
)


def known_window(model: str) -> int | None:
    """The window of a well-known hosted model; a provider's prefix (`openai/gpt-5`) is ignored."""
    name = model.rsplit("/", 1)[-1].lower()
    return next((tokens for start, tokens in _KNOWN if name.startswith(start)), None)


def window_of(entry: Mapping[str, Any]) -> int | None:
    """The window that an entry of an endpoint's `/models` list states, in any of the usual fields."""
    for place in (entry, entry.get("meta"), entry.get("top_provider"), entry.get("limits")):
        if not isinstance(place, Mapping):
            continue
        for name in ("loaded_context_length", *_FIELDS):
            value = place.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return None


def ollama_window(running: Any, model: str) -> int | None:
    """The window that Ollama has given a loaded model, from its `/api/ps`; None where it is not loaded."""
    entries = running.get("models") if isinstance(running, dict) else None
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and model in (
            entry.get("name"),
            entry.get("model"),
            str(entry.get("name")).split(":")[0],
        ):
            return window_of(entry)
    return None
