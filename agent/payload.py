"""Data of the log as bytes: JSON, exact for whatever Python values a model or a client sent.

orjson writes almost everything. What it would refuse or change (lone surrogates, integers beyond 64 bits,
NaN and infinities, very deep nesting) is written by the standard library behind a leading space, which tells
`decode` to read it back the same way.
"""

import json
import math
from typing import Any

import orjson


def encode(data: Any) -> bytes:
    """UTF-8 JSON. Raises `TypeError` for what JSON has no form for at all."""
    try:
        payload = orjson.dumps(data)
    except (orjson.JSONEncodeError, RecursionError):
        return _exact(data)
    if b"null" in payload and _has_odd_float(data):
        return _exact(data)
    return payload


def decode(payload: bytes) -> Any:
    """What `encode` was given. Raises `ValueError` for bytes that are not JSON."""
    if payload[:1] == b" ":
        return json.loads(payload)
    return orjson.loads(payload)


def _exact(data: Any) -> bytes:
    try:
        return b" " + json.dumps(data, separators=(",", ":")).encode("ascii")
    except (ValueError, RecursionError) as error:
        raise TypeError(f"the data nests too deeply or refers to itself: {error}") from error


def _has_odd_float(data: Any) -> bool:
    """Whether a NaN or an infinity hides in the data: orjson writes them as null."""
    waiting = [data]
    while waiting:
        item = waiting.pop()
        if isinstance(item, float):
            if not math.isfinite(item):
                return True
        elif isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, (list, tuple)):
            waiting.extend(item)
    return False
