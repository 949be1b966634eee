"""Blobs: content ahead of its event, and the end of what nobody names."""

from typing import Any

from agent.prompt_chain import Node
from server.store import Store
from tests.support.log_events import created, generation, result, tables
from tools.workspace import content_hash


async def test_content_may_come_before_its_event(store: Store, url: str) -> None:
    log = await store.lease(await store.create_session(created()))
    contents = [b"large " * 500, b"small"]
    names = await store.put_blobs(contents)
    assert names == [content_hash(content) for content in contents]
    draft = result(contents[0])
    draft.blobs.clear()
    await log.submit(draft)
    assert {row["hash"]: row["refs"] for row in (await tables(url))["blobs"]} == {names[0]: 1, names[1]: 0}
    assert await store.sweep() == 0
    assert await store.sweep(older_us=-1_000_000) == 1
    assert await store.blob(names[0]) == contents[0]
    assert [row["hash"] for row in (await tables(url))["blobs"]] == [names[0]]


async def test_content_put_twice_is_stored_once(store: Store, url: str) -> None:
    log = await store.lease(await store.create_session(created()))
    await log.submit(result(b"content"))
    await store.put_blobs([b"content", b"content"])
    [row] = (await tables(url))["blobs"]
    assert row["refs"] == 1


async def test_a_long_chain_of_prompts_goes_with_its_session(store: Store, url: str) -> None:
    id = await store.create_session(created())
    log = await store.lease(id)
    items: list[dict[str, Any]] = []
    node: Node | None = None
    for index in range(700):
        items.append({"role": "user", "content": str(index)})
        call, node, _ = generation(items, node)
        log.submit(call)
    await log.release()
    assert len((await tables(url))["blobs"]) == 700
    await store.delete_session(id)
    assert (await tables(url))["blobs"] == []


async def test_a_prompt_that_another_session_shares_stays(store: Store) -> None:
    ids = [await store.create_session(created()) for _ in range(2)]
    items: list[dict[str, Any]] = [{"role": "system", "content": "the same"}]
    calls: list[str] = []
    for id in ids:
        log = await store.lease(id)
        first, node, _ = generation(items)
        second, _, _ = generation([*items, {"role": "user", "content": id}], node)
        log.submit(first)
        log.submit(second)
        await log.release()
        calls.append(second.data["id"])
    await store.delete_session(ids[0])
    found = await store.generation(calls[1])
    assert found["messages"] == [*items, {"role": "user", "content": ids[1]}]
