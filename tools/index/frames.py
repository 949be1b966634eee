"""Messages between the server and the child that indexes: a JSON object, and bytes where it carries some."""

import asyncio
import struct
from typing import Any, BinaryIO, Final

import orjson

MAX_MESSAGE: Final = 32 * 1024 * 1024
"""Bytes of one message; a larger one ends the connection."""

_HEAD: Final = struct.Struct(">II")


class BadFrame(Exception):
    """The other side sent what is no message."""


def packed(message: dict[str, Any], data: bytes = b"") -> bytes:
    body = orjson.dumps(message)
    return b"".join((_HEAD.pack(len(body), len(data)), body, data))


async def receive(stream: asyncio.StreamReader) -> tuple[dict[str, Any], bytes] | None:
    """The next message with its bytes, or None at the end.

    Raises:
        BadFrame: it is too large or no JSON object.
    """
    try:
        sizes = _sizes(await stream.readexactly(_HEAD.size))
        body, data = await stream.readexactly(sizes[0]), await stream.readexactly(sizes[1])
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return _message(body), data


def receive_blocking(stream: BinaryIO) -> tuple[dict[str, Any], bytes] | None:
    """As `receive`, for a thread."""
    head = stream.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    sizes = _sizes(head)
    body, data = stream.read(sizes[0]), stream.read(sizes[1])
    if len(body) < sizes[0] or len(data) < sizes[1]:
        return None
    return _message(body), data


def _sizes(head: bytes) -> tuple[int, int]:
    first, second = _HEAD.unpack(head)
    if first + second > MAX_MESSAGE:
        raise BadFrame(f"a message of {first + second} bytes; the most is {MAX_MESSAGE}")
    return first, second


def _message(body: bytes) -> dict[str, Any]:
    try:
        message = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadFrame(f"a message that is no JSON: {error}") from error
    if not isinstance(message, dict):
        raise BadFrame("a message that is no object")
    return message
