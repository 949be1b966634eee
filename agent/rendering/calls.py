"""Tool calls as models write them in text: JSON between `<tool_call>` tags or in a ```json fence."""

import json
import re
import secrets
from collections.abc import Set
from typing import Final

from agent.events import Call

_NAME: Final = re.compile(r'"name"\s*:\s*"([^"\\]*)"')
_SPACE: Final = re.compile(r"\s*")
_DECODER: Final = json.JSONDecoder(strict=False)


def tagged(body: str) -> Call:
    """The call between `<tool_call>` tags. A malformed one keeps its whole text as arguments."""
    if found := _members(body):
        name, arguments = found
        return _call(name, arguments)
    match = _NAME.search(body)
    return _call(match.group(1) if match else "", body.strip())


def fenced(body: str, known: Set[str]) -> Call | None:
    """The call in a ```json fence: only where it names a known tool, for other JSON is an answer."""
    found = _members(body)
    return _call(*found) if found and found[0] in known else None


def _call(name: str, arguments: str) -> Call:
    return Call(id=f"call_{secrets.token_hex(8)}", name=name, arguments=arguments)


def _members(body: str) -> tuple[str, str] | None:
    """Name and raw arguments of `{"name": …, "arguments": …}`; None if it is not such an object."""
    at = _skip(body, 0)
    if body[at : at + 1] != "{":
        return None
    at, name, arguments = at + 1, None, "{}"
    try:
        while body[_skip(body, at)] != "}":
            key, at = _DECODER.raw_decode(body, _skip(body, at))
            at = _skip(body, at)
            if body[at] != ":":
                return None
            start = _skip(body, at + 1)
            value, at = _DECODER.raw_decode(body, start)
            if key == "name" and isinstance(value, str):
                name = value
            elif key in ("arguments", "parameters"):
                # Some models write the arguments as a string of JSON.
                arguments = value if isinstance(value, str) else body[start:at]
            at = _skip(body, at)
            if body[at] == ",":
                at += 1
            elif body[at] != "}":
                return None
    except (json.JSONDecodeError, IndexError, RecursionError):
        return None
    if body[_skip(body, _skip(body, at) + 1) :]:
        return None
    return None if name is None else (name, arguments)


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at
