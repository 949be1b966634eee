"""`agent.prompt_chain`: exact prompts, each item stored once."""

import random
from typing import Any

import pytest

from agent.prompt_chain import (
    Node,
    chain,
    chain_ids,
    parent_of,
    resolve,
    resolve_ids,
    restore,
    split,
)
from tools.workspace import content_hash

SYSTEM = {"role": "system", "content": "You are a coding agent." * 50}
TOOLS = {"tools": [{"type": "function", "function": {"name": "read"}}]}


def message(index: int) -> dict[str, Any]:
    return {"role": "user", "content": f"message {index} " * 40}


class Blobs(dict[str, bytes]):
    async def fetch(self, hash: str) -> bytes:
        return self[hash]


async def test_each_item_of_a_growing_prompt_is_stored_once() -> None:
    stored, node, items = Blobs(), None, [SYSTEM, TOOLS]
    nodes: list[tuple[str, int]] = []
    for index in range(200):
        items.append(message(index))
        node, blobs = chain(node, items)
        assert all(content_hash(data) == name for name, data in blobs.items())
        stored.update(blobs)
        nodes.append((node.hash, len(items)))
    total = sum(len(data) for data in stored.values())
    assert node is not None
    assert total < node.size * 1.25
    for hash, length in nodes:
        assert await resolve(hash, stored.fetch) == items[:length]


async def test_the_same_prompt_again_stores_nothing() -> None:
    items = [SYSTEM, TOOLS, message(1)]
    node, blobs = chain(None, items)
    again, more = chain(node, items)
    assert len(blobs) == 1
    assert more == {}
    assert again.hash == node.hash
    assert again.shared == again.size == node.size


async def test_a_summary_goes_back_to_the_last_common_node() -> None:
    stored = Blobs()
    head, blobs = chain(None, [SYSTEM, TOOLS])
    stored.update(blobs)
    grown, blobs = chain(head, [SYSTEM, TOOLS, *map(message, range(9))])
    stored.update(blobs)
    summary = [SYSTEM, TOOLS, {"role": "user", "content": "summary"}]
    node, blobs = chain(grown, summary)
    assert [parent_of(blob) for blob in blobs.values()] == [head.hash]
    assert node.shared == head.size
    stored.update(blobs)
    assert await resolve(node.hash, stored.fetch) == summary


async def test_a_changed_start_begins_a_new_root() -> None:
    node, _ = chain(None, [SYSTEM, TOOLS])
    other, blobs = chain(node, [{"role": "system", "content": "plan"}, TOOLS])
    assert [parent_of(blob) for blob in blobs.values()] == [None]
    assert other.shared == 0


async def test_an_opened_session_goes_on_from_its_stored_node() -> None:
    stored, items = Blobs(), [SYSTEM, TOOLS, message(0)]
    node, blobs = chain(None, items)
    stored.update(blobs)
    items.append({"role": "assistant", "content": "\ud800", "n": 10**30})
    node, blobs = chain(node, items)
    stored.update(blobs)
    back = await restore(node.hash, stored.fetch)
    assert (back.marks, back.digests, back.size) == (node.marks, node.digests, node.size)
    items.append(message(2))
    grown, blobs = chain(back, items)
    assert [parent_of(blob) for blob in blobs.values()] == [node.hash]
    stored.update(blobs)
    assert await resolve(grown.hash, stored.fetch) == items


@pytest.mark.parametrize("seed", range(20))
async def test_random_prompts_are_resolved_exactly(seed: int) -> None:
    rng, stored = random.Random(seed), Blobs()
    node: Node | None = None
    items: list[dict[str, Any]] = []
    for _ in range(40):
        items = items[: rng.randint(0, len(items))] if rng.random() < 0.2 else list(items)
        items.extend(message(rng.randint(0, 9)) for _ in range(rng.randint(0, 3)))
        node, blobs = chain(node, items)
        stored.update(blobs)
        assert await resolve(node.hash, stored.fetch) == items


@pytest.mark.parametrize("seed", range(20))
async def test_token_ids_are_resolved_exactly_and_stored_once(seed: int) -> None:
    rng, stored, ids, node = random.Random(seed), Blobs(), list[int](), None
    grew = 0
    for _ in range(40):
        if rng.random() < 0.1:
            ids = ids[: rng.randint(0, len(ids))]
        ids = ids + [rng.randint(0, 150_000) for _ in range(rng.randint(0, 300))]
        before = node.marks if node else ()
        node, blobs = chain_ids(node, ids)
        stored.update(blobs)
        grew += bool(before) and node.marks[: len(before)] == before
        assert await resolve_ids(node.hash, stored.fetch) == ids
    assert grew > 20


async def test_a_missing_piece_is_a_key_error() -> None:
    node, _ = chain(None, [SYSTEM])
    with pytest.raises(KeyError):
        await resolve(node.hash, Blobs().fetch)


def test_bytes_that_are_no_node_are_refused() -> None:
    for data in (b"[]", b"{}", b"\x89PNG", b'{"items": [], "parent": 3}'):
        with pytest.raises(ValueError):
            parent_of(data)


def test_split_gives_messages_and_tools() -> None:
    assert split([SYSTEM, TOOLS, message(1)]) == ([SYSTEM, message(1)], TOOLS["tools"])
