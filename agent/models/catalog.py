"""From a model's name to its client."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.models.chat_completions import ChatCompletions
from agent.models.client import ModelClient, ModelError
from agent.models.discovery import discover, suitable
from agent.models.endpoint import ADDRESSES, OPENAI
from agent.models.recorded import LoadEvents, RecordedModel
from agent.models.settings import ModelSettings

DEFAULT_HOSTED = "gpt-5"
"""Taken when only `OPENAI_API_KEY` says what to use."""


def open_model(
    name: str,
    *,
    models: Mapping[str, ModelSettings],
    cache_dir: Path,
    load_events: LoadEvents | None = None,
    environ: Mapping[str, str] = os.environ,
) -> ModelClient:
    """The client of a model; connects to nothing yet and needs no key.

    `name` is a key of `models` (the `[models.NAME]` tables), `local[:PATH]`, `openai:MODEL`,
    `recorded:SESSION` (needs `load_events`), or a model of a server at its usual address:
    `ollama:MODEL`, `lmstudio:MODEL`, `vllm:MODEL`.

    Raises:
        ModelError: there is no such model; the message lists what there is.
    """
    settings = models.get(name)
    kind, _, rest = name.partition(":")
    if settings is None:
        if kind == "local":
            settings = ModelSettings(provider="local", model=rest)
        elif kind == "recorded" and rest:
            settings = ModelSettings(provider="recorded", model=rest)
        elif (kind == "openai" or kind in ADDRESSES) and rest:
            settings = ModelSettings.model_validate({"provider": kind, "model": rest})
        else:
            raise ModelError(_unknown(name, models))
    match settings.provider:
        case "local":
            return _local(name, settings, cache_dir)
        case "recorded":
            if load_events is None:
                raise ModelError(f"{name}: recorded sessions lie in a server's store; there is none here.")
            return RecordedModel(settings.model, load_events)
        case _:
            if not settings.model:
                raise ModelError(
                    f"[models.{name}] does not say which model: set `model` to its name at the endpoint."
                )
            return ChatCompletions(name, settings, environ)


def _local(name: str, settings: ModelSettings, cache_dir: Path) -> ModelClient:
    try:
        from agent.models.local import LocalModel
    except ModuleNotFoundError as error:
        raise ModelError(
            f"The embedded model needs the extra `local` ({error.name} is missing):"
            " run `etude models install`, or choose another model."
        ) from error
    path = Path(settings.model).expanduser() if settings.model else None
    return LocalModel(path, cache_dir, settings)


def _unknown(name: str, models: Mapping[str, ModelSettings]) -> str:
    configured = f"configured: {', '.join(sorted(models))}" if models else "none is configured"
    return (
        f"There is no model {name!r} ({configured}). Also possible: local[:PATH], openai:MODEL,"
        f" {', '.join(f'{provider}:MODEL' for provider in ADDRESSES)}, recorded:SESSION."
    )


@dataclass(frozen=True, slots=True)
class DefaultModel:
    """A model to use when the user named none. `reason` says why, for people."""

    name: str
    reason: str


async def default_model(
    models: Mapping[str, ModelSettings],
    *,
    environ: Mapping[str, str] = os.environ,
    addresses: Mapping[str, str] = ADDRESSES,
) -> DefaultModel:
    """A configured endpoint; else a model server on loopback; else the embedded model.

    Raises:
        ModelError: `OPENAI_BASE_URL` names an endpoint that does not list its models.
    """
    for name in models:
        return DefaultModel(name, f"[models.{name}] is the first configured model")
    base_url = environ.get("OPENAI_BASE_URL")
    if base_url and base_url.rstrip("/") != OPENAI:
        model = await _listed_first(base_url, environ)
        return DefaultModel(f"openai:{model}", f"OPENAI_BASE_URL names an endpoint that serves {model}")
    if environ.get("OPENAI_API_KEY"):
        return DefaultModel(f"openai:{DEFAULT_HOSTED}", "OPENAI_API_KEY is set")
    for server in await discover(addresses):
        reason = f"{server.provider} runs at {server.base_url}"
        return DefaultModel(f"{server.provider}:{server.models[0]}", reason)
    return DefaultModel("local", "no endpoint is configured and no model server runs on this machine")


async def _listed_first(base_url: str, environ: Mapping[str, str]) -> str:
    client = ChatCompletions(base_url, ModelSettings(base_url=base_url), environ)
    try:
        names = suitable(await client.models())
    except ModelError as error:
        raise ModelError(f"{error.message} Name a model: --model openai:MODEL.") from error
    finally:
        await client.close()
    if not names:
        raise ModelError(f"{base_url} lists no chat model. Name one: --model openai:MODEL.")
    return names[0]
