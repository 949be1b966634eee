"""What an MCP server is reached by: a program to start, or an address."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

_UNNAMED: Final = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST: Final = 65_536


def callable_name(name: str) -> str:
    """A name with only the characters that models may call tools by."""
    return _UNNAMED.sub("_", name)


class McpSpecError(ValueError):
    """The description of a server is wrong. The message says what is expected."""


@dataclass(frozen=True, slots=True)
class McpSpec:
    """One server. Either `command` (with `args` and `env`) or `url` (with `headers`) is set."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise McpSpecError("an MCP server needs a name")
        if bool(self.command) == bool(self.url):
            raise McpSpecError(f"MCP server {self.name!r}: give either a command or a url")
        if self.url:
            parts = urlsplit(self.url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise McpSpecError(f"MCP server {self.name!r}: url must be an http or https address")
        words = (self.name, self.command, self.url, *self.args, *self.env, *self.env.values())
        if any("\0" in word or len(word) > _LONGEST for word in (*words, *self.headers.values())):
            raise McpSpecError(f"MCP server {self.name!r}: a value holds a NUL or is too long")

    @property
    def prefix(self) -> str:
        """The name as tool names carry it."""
        return callable_name(self.name).strip("_")[:24] or "server"

    @property
    def shown(self) -> str:
        """How a person recognises it; without secrets of its environment or headers."""
        return self.url or " ".join((self.command, *self.args))

    @classmethod
    def of_client(cls, given: Mapping[str, Any]) -> "McpSpec":
        """From an `mcpServers` item of `session/new`.

        Raises:
            McpSpecError: what is wrong with it.
        """
        name = given.get("name")
        if not isinstance(name, str):
            raise McpSpecError("each of mcpServers needs a name")
        kind = given.get("type")
        if kind == "http":
            return cls(name, url=_text(given, name, "url"), headers=_pairs(given, name, "headers"))
        if kind not in (None, "stdio"):
            raise McpSpecError(
                f"MCP server {name!r}: type {kind!r} is not offered; use a program (stdio) or type http"
            )
        args = given.get("args", [])
        if not isinstance(args, list) or not all(isinstance(word, str) for word in args):
            raise McpSpecError(f"MCP server {name!r}: args must be a list of strings")
        command = _text(given, name, "command")
        return cls(name, command=command, args=tuple(args), env=_pairs(given, name, "env"))


def _text(given: Mapping[str, Any], name: str, key: str) -> str:
    value = given.get(key)
    if not isinstance(value, str) or not value:
        raise McpSpecError(f"MCP server {name!r}: {key} must be a string")
    return value


def _pairs(given: Mapping[str, Any], name: str, key: str) -> dict[str, str]:
    """`[{name, value}]` as a mapping."""
    items = given.get(key) or []
    if not isinstance(items, Sequence) or isinstance(items, str):
        raise McpSpecError(f"MCP server {name!r}: {key} must be a list of names and values")
    pairs: dict[str, str] = {}
    for item in items:
        known = isinstance(item, Mapping)
        if not known or not isinstance(item.get("name"), str) or not isinstance(item.get("value"), str):
            raise McpSpecError(f"MCP server {name!r}: {key} must be a list of {{name, value}}")
        pairs[item["name"]] = item["value"]
    return pairs
