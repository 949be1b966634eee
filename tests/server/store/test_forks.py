"""Forks read through their parents; deleting a parent takes nothing from them. Rebuilding changes nothing."""

import asyncio
import random
from typing import Any

import pytest
from sqlalchemy import delete

from agent.events import Draft
from agent.prompt_chain import Node
from server.store import Store, StoreError, UnknownSession
from server.store.database import Database, open_backend
from server.store.tables import metadata
from tests.support.log_events import (
    approval,
    approved,
    created,
    edit,
    ended,
    expected_references,
    generation,
    prompt,
    result,
    revoked,
    started,
    tables,
    words,
)


async def extend(store: Store, id: str, *drafts: Draft) -> None:
    log = await store.lease(id)
    await asyncio.gather(*(log.submit(item) for item in drafts))
    await log.release()


async def contents(store: Store, id: str) -> list[tuple[int, str, dict[str, Any]]]:
    events = await store.all_events(id)
    assert all(event.session_id == id for event in events)
    return [(event.seq, event.type, event.data) for event in events]


async def test_a_fork_goes_on_from_its_parent(store: Store, url: str) -> None:
    parent = await store.create_session(created())
    await extend(store, parent, *(words(str(index)) for index in range(9)))
    fork = await store.create_session(created(parent_id=parent, fork_seq=5))
    await extend(store, fork, words("mine"))
    events = await contents(store, fork)
    assert [seq for seq, _, _ in events] == [1, 2, 3, 4, 5, 6, 7]
    assert events[:5] == (await contents(store, parent))[:5]
    assert [kind for _, kind, _ in events[5:]] == ["session.created", "text"]
    assert [event.seq for event in await store.events(fork, after=3, limit=3)] == [4, 5, 6]
    row = await store.session(fork)
    assert (row.parent_id, row.fork_seq, row.last_seq) == (parent, 5, 7)
    own = [row for row in (await tables(url))["events"] if row["session_id"] == fork]
    assert len(own) == 2


async def test_a_fork_needs_a_point_that_exists(store: Store) -> None:
    parent = await store.create_session(created())
    for point in (0, -1, 2):
        with pytest.raises(StoreError, match=f"no event {point}: expected 1 to 1"):
            await store.create_session(created(parent_id=parent, fork_seq=point))
    with pytest.raises(UnknownSession):
        await store.create_session(created(parent_id="nobody", fork_seq=1))
    fork = await store.create_session(created(parent_id=parent))
    assert (await store.session(fork)).fork_seq == 1


async def test_a_fork_of_inherited_events_continues_their_owner(store: Store) -> None:
    first = await store.create_session(created())
    await extend(store, first, *(words(str(index)) for index in range(9)))
    second = await store.create_session(created(parent_id=first, fork_seq=8))
    third = await store.create_session(created(parent_id=second, fork_seq=4))
    assert (await store.session(third)).parent_id == first
    await store.delete_session(second)
    assert [seq for seq, _, _ in await contents(store, third)] == [1, 2, 3, 4, 5]


@pytest.mark.case("agent-8")
async def test_deleting_a_parent_keeps_what_its_forks_read(store: Store, url: str) -> None:
    parent = await store.create_session(created(title="parent"))
    call, _, _ = generation([{"role": "user", "content": "x" * 6000}])
    await extend(store, parent, prompt("go"), call, result(b"output" * 2000), approval("r1"), words("end"))
    forks = [await store.create_session(created(parent_id=parent, fork_seq=5)) for _ in range(2)]
    deep = await store.create_session(created(parent_id=forks[0], fork_seq=6))
    for id in forks:
        await extend(store, id, approved("r1"), words("mine"))
    before = {id: await contents(store, id) for id in (*forks, deep)}
    await store.delete_session(parent)
    assert {id: await contents(store, id) for id in before} == before
    assert (await store.generation(call.data["id"]))["messages"] == [{"role": "user", "content": "x" * 6000}]
    row = await store.session(forks[0])
    assert (row.parent_id, row.fork_seq, row.title, row.last_seq) == (None, None, None, 8)
    assert row.opening == "go"
    rows = await tables(url)
    [answered] = [row for row in rows["approvals"] if row["session_id"] == forks[0]]
    assert (answered["title"], answered["outcome"]) == ("rm", "allowed")
    assert {blob["hash"]: blob["refs"] for blob in rows["blobs"]} == expected_references(rows)
    for id in (forks[0], deep, forks[1]):
        await store.delete_session(id)
    assert (await tables(url))["blobs"] == []


def _random_draft(
    rng: random.Random, items: list[dict[str, Any]], node: Node | None
) -> tuple[Draft, Node | None]:
    """Some event of a session whose prompt so far is `items`."""
    match rng.randint(0, 12):
        case 0:
            return prompt("p" * rng.choice([3, 9000])), node
        case 1:
            return started(turn=rng.randint(1, 9)), node
        case 2:
            return ended(), node
        case 3 | 4:
            del items[rng.randint(0, len(items)) :]
            items.extend(
                {"role": "user", "content": f"{rng.randint(0, 3)}" * 50} for _ in range(rng.randint(1, 4))
            )
            call, node, _ = generation(
                items, node, ids=[rng.randint(0, 9) for _ in range(rng.randint(1, 20))]
            )
            return call, node
        case 5:
            return result(b"output %d" % rng.randint(0, 5) * 400), node
        case 6:
            return edit(b"before %d" % rng.randint(0, 3), b"after %d" % rng.randint(0, 3)), node
        case 7:
            return approval(f"r{rng.randint(0, 3)}"), node
        case 8:
            rules = [f"shell:git r{rng.randint(0, 2)}" for _ in range(rng.randint(0, 2))]
            return approved(f"r{rng.randint(0, 3)}", *rules), node
        case 11:
            return revoked(f"shell:git r{rng.randint(0, 2)}"), node
        case 9:
            return Draft(
                type="feedback", data={"kind": "accept", "target": {"seq": 3}, "comment": "ok"}
            ), node
        case 10:
            return Draft(
                type="checkpoint", data={"snapshot": f"s{rng.randint(0, 9)}", "label": "before"}
            ), node
        case _:
            return words("w" * rng.choice([5, 7000])), node


@pytest.mark.parametrize("seed", range(6))
async def test_any_history_of_forks_and_deletions_keeps_every_log(store: Store, url: str, seed: int) -> None:
    """Against a plain model: each session's log as a list. Counts of blobs and projections must agree too."""
    rng = random.Random(seed)
    model: dict[str, list[tuple[int, str, dict[str, Any]]]] = {}
    prompts: dict[str, tuple[list[dict[str, Any]], Node | None]] = {}
    for _ in range(60):
        action = rng.random()
        if not model or action < 0.1:
            id = await store.create_session(created(f"/code/{rng.randint(0, 2)}"))
            model[id] = await contents(store, id)
        elif action < 0.3:
            parent = rng.choice(list(model))
            point = rng.randint(1, len(model[parent]))
            id = await store.create_session(created(parent_id=parent, fork_seq=point))
            events = await contents(store, id)
            assert events[:point] == model[parent][:point]
            assert len(events) == point + 1
            model[id] = events
        elif action < 0.42 and len(model) > 1:
            id = rng.choice(list(model))
            await store.delete_session(id)
            del model[id]
            prompts.pop(id, None)
        else:
            id = rng.choice(list(model))
            items, node = prompts.get(id, ([], None))
            drafts: list[Draft] = []
            for _ in range(rng.randint(1, 6)):
                item, node = _random_draft(rng, items, node)
                drafts.append(item)
            prompts[id] = items, node
            await extend(store, id, *drafts)
            start = len(model[id]) + 1
            model[id] += [(start + index, item.type, item.data) for index, item in enumerate(drafts)]
    for id, events in model.items():
        assert await contents(store, id) == events
    before = await tables(url)
    assert {blob["hash"]: blob["refs"] for blob in before["blobs"]} == expected_references(before)
    counts = await store.rebuild()
    after = await tables(url)
    for name in before:
        assert after[name] == before[name], name
    assert counts == {name: len(after[name]) for name in counts}
    for id in list(model):
        await store.delete_session(id)
    assert [(await tables(url))[name] for name in ("events", "blobs", "sessions", "generations")] == [[]] * 4


async def test_rebuilding_keeps_settings_and_running_sessions(store: Store, url: str) -> None:
    id = await store.create_session(created("/code/a"))
    await store.set_consent("/code/a", "eval", retention_days=7)
    await store.set_consent("/code/without-sessions", "none")
    log = await store.lease(id)
    await log.submit(started())
    before = await tables(url)
    await store.rebuild()
    assert await tables(url) == before
    assert (await store.session(id)).running
    assert (await log.submit(words())).seq == 3


async def test_lost_projections_come_back_from_the_log(store: Store, url: str) -> None:
    id = await store.create_session(created("/code/a", consent="train", title="kept"))
    await extend(store, id, prompt("go"), generation([{"role": "user", "content": "go"}])[0], ended())
    before = await tables(url)
    database = Database(open_backend(url))
    for table in metadata.sorted_tables:
        if table.name not in ("events", "blobs"):
            await database.write(lambda connection, table=table: connection.execute(delete(table)))
    await database.close()
    await store.rebuild()
    after = await tables(url)
    assert after["generations"] == before["generations"]
    row, lost = after["sessions"][0], before["sessions"][0]
    # Terms are no part of the log, and the workspace got a new id.
    assert row | {"term": 1, "workspace_id": ""} == lost | {"workspace_id": ""}
    [workspace] = after["workspaces"]
    assert (workspace["path"], workspace["consent"], workspace["id"]) == (
        "/code/a",
        "train",
        row["workspace_id"],
    )
