"""`Store`: sessions are made, listed, read and deleted."""

import asyncio
import time
from typing import Any

import pytest

from agent.events import ConfigChanged, Draft, draft
from agent.log import Log
from agent.prompt_chain import IdNode, Node, resolve, restore
from server.store import SessionLog, Store, StoreError, UnknownBlob, UnknownGeneration, UnknownSession
from tests.support.log_events import created, ended, generation, prompt, result, started, tables, words
from tools.workspace import content_hash


async def record(log: SessionLog, *drafts: Draft) -> None:
    await asyncio.gather(*(log.submit(item) for item in drafts))


async def test_a_new_session_begins_with_its_creation(store: Store) -> None:
    id = await store.create_session(created(title="first", client={"name": "page"}))
    [event] = await store.all_events(id)
    assert (event.type, event.seq, event.session_id, event.v) == ("session.created", 1, id, 1)
    assert event.data["title"] == "first"
    row = await store.session(id)
    assert (row.id, row.user_id, row.workspace, row.title) == (id, "local", "/code/app", "first")
    assert (row.last_seq, row.term, row.owner, row.running) == (1, 0, None, False)


async def test_what_was_recorded_is_read_after_opening_again(url: str) -> None:
    async with await Store.open(url) as store:
        id = await store.create_session(created())
        log: Log = await store.lease(id)
        events = [await log.submit(words(f"{index}")) for index in range(5)]
        assert [event.seq for event in events] == [2, 3, 4, 5, 6]
        assert log.term == 1
    async with await Store.open(url) as store:
        assert (await store.all_events(id))[1:] == events


async def test_pages_are_keyed_by_sequence(store: Store) -> None:
    id = await store.create_session(created())
    log = await store.lease(id)
    await record(log, *(words(str(index)) for index in range(24)))
    assert [event.seq for event in await store.events(id, after=20)] == [21, 22, 23, 24, 25]
    assert [event.seq for event in await store.events(id, after=3, limit=2)] == [4, 5]
    assert await store.events(id, after=25) == []
    pages = [page async for page in store.pages(id, after=1, size=10)]
    assert [len(page) for page in pages] == [10, 10, 4]


async def test_a_long_answer_is_read_in_pieces_and_is_whole(store: Store) -> None:
    id = await store.create_session(created())
    log = await store.lease(id)
    await record(log, *(words(str(index)) for index in range(1_200)))
    for limit, expected in ((1_100, 1_100), (1_000, 1_000), (5_000, 1_201)):
        assert [event.seq for event in await store.events(id, limit=limit)] == [*range(1, expected + 1)]
    assert [event.seq for event in await store.events(id, after=200, limit=600)] == [*range(201, 801)]


async def test_long_and_odd_data_is_read_back(store: Store) -> None:
    id = await store.create_session(created())
    log = await store.lease(id)
    odd: list[dict[str, Any]] = [
        {"text": "x" * 100_000},
        {"text": "lone \ud800 and \x00 and 🎉", "big": 10**40},
        {"values": [float("-inf"), 1.5, None]},
        {"a" * 5000: {"b": [[[]]]}},
    ]
    for data in odd:
        await log.submit(Draft(type="future.type", data=data))
    assert [event.data for event in await store.events(id, after=1)] == odd


async def test_unknown_things_are_named(store: Store) -> None:
    for attempt in (store.session("X"), store.events("X"), store.lease("X"), store.delete_session("X")):
        with pytest.raises(UnknownSession, match="no session X"):
            await attempt
    with pytest.raises(UnknownGeneration, match="no generation X"):
        await store.generation("X")
    with pytest.raises(UnknownBlob, match="no blob X"):
        await store.blob("X")
    with pytest.raises(KeyError):
        await store.blob("X")


async def test_lists_are_newest_first_and_go_on_where_they_ended(store: Store) -> None:
    ids = [await store.create_session(created(title=f"number {index}")) for index in range(7)]
    log = await store.lease(ids[2])
    await record(log, words())
    expected = [ids[2], *(id for id in reversed(ids) if id != ids[2])]
    assert [row.id for row in await store.sessions()] == expected
    first = await store.sessions(limit=3)
    second = await store.sessions(limit=3, before=first[-1].cursor)
    third = await store.sessions(limit=3, before=second[-1].id)
    assert [row.id for row in (*first, *second, *third)] == expected
    with pytest.raises(UnknownSession):
        await store.sessions(before="nowhere")


async def test_lists_are_filtered(store: Store) -> None:
    mine = await store.create_session(created("/code/a", title="Fix 100% of the_bugs"))
    other = await store.create_session(created("/code/b", user_id="ada"))
    log = await store.lease(other)
    await record(log, prompt("Please RENAME the module"), prompt("thanks"))

    async def found(**filters: Any) -> list[str]:
        return [row.id for row in await store.sessions(**filters)]

    assert await found(workspace="/code/a") == [mine]
    assert await found(user_id="ada") == [other]
    assert await found(query="rename THE") == [other]
    assert await found(query="100%") == [mine]
    assert await found(query="_") == [mine]
    assert await found(query="%%") == []
    assert (await store.session(other)).opening == "Please RENAME the module"


async def test_a_session_row_follows_its_log(store: Store) -> None:
    id = await store.create_session(created())
    log = await store.lease(id)
    await record(log, prompt("go"), started(turn=1))
    row = await store.session(id)
    assert (row.running, row.turn, row.ended, row.term) == (True, 1, None, 1)
    call, _, _ = generation([{"role": "user", "content": "go"}])
    changed = draft("config.changed", ConfigChanged(mode="auto", title="renamed"))
    await record(log, call, changed, ended(turn=1))
    row = await store.session(id)
    assert (row.running, row.ended, row.mode, row.title) == (False, "end_turn", "auto", "renamed")
    assert (row.generations, row.cost, row.last_seq) == (1, 0.25, 6)


async def test_titles_that_a_database_cannot_hold_are_made_plain(store: Store) -> None:
    id = await store.create_session(created(title="nul \x00 and surrogate \udfff"))
    assert (await store.session(id)).title == "nul \N{REPLACEMENT CHARACTER} and surrogate ?"
    [event] = await store.all_events(id)
    assert event.data["title"] == "nul \x00 and surrogate \udfff"


async def test_a_generation_comes_with_its_exact_prompt(store: Store) -> None:
    id = await store.create_session(created())
    log = await store.lease(id)
    tools = [{"type": "function", "function": {"name": "read"}}]
    items: list[dict[str, Any]] = [{"role": "system", "content": "be exact"}, {"tools": tools}]
    node: Node | None = None
    ids: list[int] = []
    id_node: IdNode | None = None
    made: list[tuple[str, int, int]] = []
    for turn in range(30):
        items.append({"role": "user", "content": f"question {turn} " * 30})
        ids = [*ids, *range(turn * 10, turn * 10 + 10)]
        call, node, id_node = generation(items, node, ids=ids, previous_ids=id_node)
        await record(log, call)
        made.append((call.data["id"], len(items), len(ids)))
    for call_id, length, count in made:
        found = await store.generation(call_id)
        assert found["messages"] == [items[0], *items[2:length]]
        assert found["tools"] == tools
        assert found["prompt_ids"] == ids[:count]
        assert found["sampling"] == {"temperature": 0.5}
        assert found["tokens"]["logprobs"] == [-0.5, 0.0]
        assert found["session_id"] == id
    assert node is not None
    assert sum(len(data) for data in await _node_contents(store, node)) < node.size * 1.3


async def test_a_stored_prompt_is_restored_in_one_read(store: Store) -> None:
    log = await store.lease(await store.create_session(created()))
    items: list[dict[str, Any]] = []
    node: Node | None = None
    for index in range(400):
        items.append({"role": "user", "content": f"{index} " * 50})
        call, node, _ = generation(items, node)
        log.submit(call)
    await log.submit(words())
    assert node is not None
    began = time.process_time()
    back = await restore(node.hash, log.blob)
    assert time.process_time() - began < 0.2
    assert (back.marks, back.digests) == (node.marks, node.digests)
    assert await resolve(node.hash, log.blob) == items
    with pytest.raises(KeyError):
        await log.blob("none")


async def _node_contents(store: Store, node: Node) -> list[bytes]:
    return [await store.blob(hash) for _, hash in node.marks]


async def test_generations_are_a_table(store: Store, url: str) -> None:
    id = await store.create_session(created(user_id="ada"))
    log = await store.lease(id)
    hosted, node, _ = generation([{"role": "user", "content": "a"}], cost=None)
    hosted.data["usage"] = {"input": 10**30, "output": "many"}
    owned, _, _ = generation([{"role": "user", "content": "b"}], node, ids=[1, 2, 3])
    await record(log, hosted, owned)
    first, second = (await tables(url))["generations"]
    assert (first["input"], first["output"], first["cost"], first["token_exact"]) == (None, None, None, False)
    assert (second["input"], second["cached"], second["output"], second["reasoning"]) == (100, 40, 7, None)
    assert (second["id"], second["user_id"], second["model"]) == (owned.data["id"], "ada", "scripted")
    assert (second["prompt_node"], second["token_exact"]) == (owned.data["prompt"]["node"], True)


async def test_deleting_a_session_leaves_nothing_of_it(store: Store, url: str) -> None:
    id, other = [await store.create_session(created()) for _ in range(2)]
    kept = await store.lease(other)
    await record(kept, result(b"shared output" * 1000))
    log = await store.lease(id)
    call, _, _ = generation([{"role": "user", "content": "x" * 9000}])
    await record(log, prompt("y" * 9000), call, result(b"shared output" * 1000), result(b"own" * 9000))
    await log.release()
    await store.delete_session(id)
    rows = await tables(url)
    assert {row["session_id"] for row in rows["events"]} == {other}
    assert [row["id"] for row in rows["sessions"]] == [other]
    assert rows["generations"] == []
    assert {row["hash"]: row["refs"] for row in rows["blobs"]} == {content_hash(b"shared output" * 1000): 1}
    with pytest.raises(UnknownSession):
        await store.session(id)


async def test_consent_is_recorded_with_each_new_session(store: Store) -> None:
    await store.create_session(created("/code/a"))
    [workspace] = await store.workspaces()
    assert (workspace.path, workspace.consent, workspace.retention_days) == ("/code/a", "metrics", None)
    await store.set_consent("/code/a", "train", retention_days=30)
    id = await store.create_session(created("/code/a"))
    [event] = await store.all_events(id)
    assert event.data["consent"] == "train"
    [workspace] = await store.workspaces()
    assert (workspace.consent, workspace.retention_days) == ("train", 30)
    with pytest.raises(StoreError, match="none, metrics, eval, train, publish"):
        await store.set_consent("/code/a", "everything")


async def test_a_url_of_no_known_kind_is_refused() -> None:
    for url in ("mysql://localhost/x", "nonsense", "sqlite://", "sqlite:///:memory:"):
        with pytest.raises(StoreError, match="expected"):
            await Store.open(url)


async def test_a_cancelled_caller_leaves_the_store_whole(store: Store) -> None:
    async with asyncio.timeout(30):
        for delay in range(40):
            task = asyncio.create_task(store.create_session(created()))
            await asyncio.sleep(delay / 8000)
            task.cancel()
            read = asyncio.create_task(store.sessions())
            await asyncio.sleep(delay / 8000)
            read.cancel()
            await asyncio.wait([task, read])
        id = await store.create_session(created())
        assert len(await store.all_events(id)) == 1
