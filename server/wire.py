"""JSON for clients: whatever the log holds can be sent, if need be in a poorer form.

The log keeps exactly what a model or a client said (see `agent.payload`); not all of that is JSON that
every client can read. An event that could not be sent would lock everybody out of its session.
"""

from typing import Any, Final

import orjson

DEPTH: Final = 100
"""Levels of a frame that are shown; orjson itself stops at 254."""
_INTEGERS: Final = range(-(2**63), 2**64)


def to_json(value: Any) -> bytes:
    """UTF-8 JSON. Lone surrogates become `?`, what nests beyond `DEPTH` a remark, huge integers text."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return orjson.dumps(_plain(value, DEPTH))


def nests_deeper(value: Any, depth: int) -> bool:
    """Whether lists and objects lie in each other more than `depth` levels deep."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(depth):
        if not level:
            return False
        level = [
            inner
            for item in level
            for inner in (item.values() if isinstance(item, dict) else item)
            if isinstance(inner, (dict, list))
        ]
    return bool(level)


def _plain(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, int) and not isinstance(value, bool) and value not in _INTEGERS:
        # Python refuses to write out integers of thousands of digits in decimal.
        return str(value) if value.bit_length() < 4096 else hex(value)
    if isinstance(value, (dict, list, tuple)) and depth == 0:
        return "[nested too deeply to be shown]"
    if isinstance(value, dict):
        return {_plain(str(key), 1): _plain(item, depth - 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, depth - 1) for item in value]
    return value
