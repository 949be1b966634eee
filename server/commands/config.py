"""`etude config show`: every value and where it comes from."""

import argparse
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from server import places
from server.terminal.lines import columns, emit, say, warn

_GIVEN = re.compile(r"mcp\.[^.]+\.(env|headers)\.")
"""Values that are likely to be secrets."""


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    show = actions.add_parser("show", help="print every setting, its value and its source")
    show.add_argument(
        "workspace", nargs="?", default=".", help="folder whose etude.toml counts (default: this one)"
    )
    show.add_argument("--json", action="store_true", help="one JSON object a line")
    show.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from server.settings import Settings
    from tools.sandbox.probe import in_effect

    workspace = places.from_caller(arguments.workspace)
    settings = Settings.load({}, os.environ, workspace if workspace.is_dir() else None)
    rows = [
        (key, value, settings.sources.get(key, "default"))
        for key, value in _values(settings.model_dump(), "")
    ]
    tier = in_effect(settings.sandbox.tier)
    if arguments.json:
        for key, value, source in rows:
            emit({"key": key, "value": value, "source": source})
        emit({"sandbox": tier})
        for warning in settings.warnings:
            emit({"warning": warning})
    else:
        columns([(key, _shown(value), source) for key, value, source in rows], ("KEY", "VALUE", "SOURCE"))
        say()
        exists = "" if places.config_file().exists() else " (does not exist)"
        say(f"your file: {places.config_file()}{exists}")
        say(f"data:      {places.data_dir()}")
        say(f"sandbox:   {tier}")
        for warning in settings.warnings:
            warn(f"warning: {warning}")
    return 0


def _values(tree: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Dotted keys and printable values, without passwords in addresses and what MCP servers are given."""
    value: Any
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and not key.endswith(".extra"):
            yield from _values(value, f"{key}.")
        elif _GIVEN.match(key):
            yield key, "…"
        elif isinstance(value, str) and "://" in value:
            yield key, without_password(value)
        elif isinstance(value, tuple):
            yield key, [str(item) if isinstance(item, Path) else item for item in value]
        else:
            yield key, value


def _shown(value: Any) -> str:
    if value in (None, "", [], {}):
        return "-"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def without_password(url: str) -> str:
    """An address as it may be shown."""
    return re.sub(r"(//[^:/@]*):[^@/]*@", r"\1:…@", url)
