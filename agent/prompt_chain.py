"""Exact prompts in shared pieces: each request stores only what the session has not stored before.

A prompt is a list of items (the system message, `{"tools": [...]}`, then messages). A *node* is a blob
`{"parent": hash or null, "items": [...]}`; the prompt of a node is its parent's prompt followed by its
items. The prompts of a session mostly grow at their end, so n requests store each item once. Prompt token
ids are kept in the same way, as `{"parent", "ids"}`.
"""

import hashlib
from array import array
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agent.payload import decode, encode
from tools.workspace import content_hash

Fetch = Callable[[str], Awaitable[bytes]]
"""Gives the bytes of a blob; raises `KeyError` if there is none."""

Marks = tuple[tuple[int, str], ...]
"""The nodes of a path from the root: how long the prompt is up to there, and the node's hash."""


@dataclass(frozen=True, slots=True)
class Node:
    """A stored prompt, and what is needed to recognise it as the start of the next one.

    Keep the node of the last *stored* generation: a node whose blobs were never stored must not become a
    parent. `size` is the bytes of the items as JSON; `shared` how many of these, in whole items from the
    start, are those of the previous prompt.
    """

    hash: str
    size: int
    shared: int
    marks: Marks
    digests: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class IdNode:
    """Stored prompt token ids; like `Node`, without the sizes."""

    hash: str
    marks: Marks
    digests: tuple[bytes, ...]
    """Digest of the ids up to each mark."""


def chain(previous: Node | None, items: Sequence[dict[str, Any]]) -> tuple[Node, dict[str, bytes]]:
    """The node of a prompt, and the blobs that are to be stored with it (none, if all of it is stored)."""
    pieces = [encode(item) for item in items]
    digests = tuple(_digest(piece) for piece in pieces)
    same = _common(previous.digests, digests) if previous else 0
    marks = tuple(mark for mark in previous.marks if mark[0] <= same) if previous else ()
    blobs: dict[str, bytes] = {}
    if not marks or marks[-1][0] < len(items):
        start, parent = marks[-1] if marks else (0, None)
        blob = encode({"parent": parent, "items": items[start:]})
        name = content_hash(blob)
        blobs[name] = blob
        marks = (*marks, (len(items), name))
    sizes = [len(piece) for piece in pieces]
    return Node(marks[-1][1], sum(sizes), sum(sizes[:same]), marks, digests), blobs


def chain_ids(previous: IdNode | None, ids: Sequence[int]) -> tuple[IdNode, dict[str, bytes]]:
    """The node of a prompt's token ids, and the blobs that are to be stored with it."""
    values = array("q", ids)
    marks: Marks = ()
    digests: tuple[bytes, ...] = ()
    running = hashlib.blake2b(digest_size=20)
    done = 0
    for mark, digest in zip(previous.marks, previous.digests, strict=True) if previous else ():
        running.update(values[done : mark[0]].tobytes())
        done = mark[0]
        if done > len(values) or running.digest() != digest:
            break
        marks, digests = (*marks, mark), (*digests, digest)
    blobs: dict[str, bytes] = {}
    if not marks or marks[-1][0] < len(values):
        start, parent = marks[-1] if marks else (0, None)
        blob = encode({"parent": parent, "ids": values[start:].tolist()})
        name = content_hash(blob)
        blobs[name] = blob
        marks = (*marks, (len(values), name))
        digests = (*digests, hashlib.blake2b(values.tobytes(), digest_size=20).digest())
    return IdNode(marks[-1][1], marks, digests), blobs


def parent_of(node: bytes) -> str | None:
    """The parent of a node blob. Raises `ValueError` for bytes that are no node."""
    data = decode(node)
    if not isinstance(data, dict) or not ({"items", "ids"} & data.keys()):
        raise ValueError("expected a prompt node {parent, items} or {parent, ids}")
    parent = data.get("parent")
    if parent is not None and not isinstance(parent, str):
        raise ValueError(f"expected a hash or null as the parent of a prompt node, got {parent!r}")
    return parent


async def restore(hash: str, fetch: Fetch) -> Node:
    """The node of a stored prompt, to go on from after a session was opened again."""
    marks: list[tuple[int, str]] = []
    digests: list[bytes] = []
    size = 0
    for name, node in await _path(hash, fetch):
        pieces = [encode(item) for item in node["items"]]
        digests.extend(_digest(piece) for piece in pieces)
        size += sum(len(piece) for piece in pieces)
        marks.append((len(digests), name))
    return Node(hash, size, 0, tuple(marks), tuple(digests))


async def resolve(hash: str, fetch: Fetch) -> list[dict[str, Any]]:
    """All items of a prompt, in order."""
    return [item for _, node in await _path(hash, fetch) for item in node["items"]]


async def resolve_ids(hash: str, fetch: Fetch) -> list[int]:
    """All token ids of a prompt, in order."""
    return [token for _, node in await _path(hash, fetch) for token in node["ids"]]


def split(items: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The messages and the tools of a prompt's items."""
    messages = [item for item in items if "role" in item]
    tools = [tool for item in items if "role" not in item for tool in item.get("tools", ())]
    return messages, tools


async def _path(hash: str, fetch: Fetch) -> list[tuple[str, dict[str, Any]]]:
    """The nodes from the root to `hash`."""
    path: list[tuple[str, dict[str, Any]]] = []
    name: str | None = hash
    while name is not None:
        node = decode(await fetch(name))
        path.append((name, node))
        name = node["parent"]
    path.reverse()
    return path


def _digest(piece: bytes) -> bytes:
    return hashlib.blake2b(piece, digest_size=20).digest()


def _common(left: Sequence[bytes], right: Sequence[bytes]) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right))
    )
