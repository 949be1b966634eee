"""`SessionLog.submit`: ordered, gap-free, in groups, and honest when something cannot be stored."""

import asyncio
import random

import pytest
from sqlalchemy import Connection, event

from agent.events import Draft, Event
from server.store import Backlog, LogError, MissingBlob, Store
from server.store import recorder as recorder_module
from tests.support.log_events import created, ended, prompt, result, tables, words
from tools.workspace import content_hash


async def test_the_order_of_submissions_is_the_order_of_the_log(store: Store) -> None:
    rng = random.Random(4)
    logs = [await store.lease(await store.create_session(created())) for _ in range(8)]
    sent: dict[str, list[str]] = {log.session_id: [] for log in logs}
    futures: list[asyncio.Future[Event]] = []
    done: list[tuple[str, int]] = []
    for index in range(3_000):
        log = rng.choice(logs)
        item = ended() if rng.random() < 0.01 else words(str(index))
        future = log.submit(item)
        future.add_done_callback(lambda f: done.append((f.result().session_id, f.result().seq)))
        futures.append(future)
        sent[log.session_id].append(str(item.data))
        if rng.random() < 0.01:
            await asyncio.sleep(rng.random() / 100)
    stored = await asyncio.gather(*futures)
    assert done == [(item.session_id, item.seq) for item in stored]
    for log in logs:
        events = await store.all_events(log.session_id)
        assert [item.seq for item in events] == list(range(1, len(events) + 1))
        assert [str(item.data) for item in events[1:]] == sent[log.session_id]


async def test_an_event_is_there_once_its_future_is_done(store: Store) -> None:
    id = await store.create_session(created())
    log = await store.lease(id)
    stored = await log.submit(words("now"))
    assert (await store.all_events(id))[-1] == stored


async def test_only_what_must_survive_a_loss_of_power_waits_for_the_disk(store: Store, url: str) -> None:
    log = await store.lease(await store.create_session(created()))
    levels: list[str] = []
    question = "PRAGMA synchronous" if url.startswith("sqlite") else "SHOW synchronous_commit"

    def look(connection: Connection) -> None:
        levels.append(str(connection.exec_driver_sql(question).scalar_one()))

    event.listen(store._database.backend.writer, "commit", look)
    for item in (words(), prompt("go"), words(), ended(), words()):
        await log.submit(item)
    relaxed, full = ("1", "2") if url.startswith("sqlite") else ("off", "on")
    assert levels == [relaxed, full, relaxed, full, relaxed]


async def test_closing_stores_what_was_submitted(url: str) -> None:
    store = await Store.open(url)
    id = await store.create_session(created())
    log = await store.lease(id)
    futures = [log.submit(words(str(index))) for index in range(2_500)]
    await store.close()
    assert all(future.done() and future.result().seq for future in futures)
    with pytest.raises(LogError, match="closed"):
        log.submit(words())
    async with await Store.open(url) as again:
        assert len(await again.all_events(id)) == 2_501


async def test_releasing_waits_and_then_takes_no_more(store: Store) -> None:
    id = await store.create_session(created())
    log = await store.lease(id)
    futures = [log.submit(words()) for _ in range(300)]
    await log.release()
    await log.release()
    assert all(future.done() for future in futures)
    assert (await store.session(id)).owner is None
    with pytest.raises(LogError, match="released"):
        log.submit(words())


@pytest.mark.parametrize("batch", [1, 1_000])
async def test_a_broken_draft_fails_with_what_followed_it(
    store: Store, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether what followed was part of the same commit or still waiting."""
    monkeypatch.setattr(recorder_module, "BATCH_EVENTS", batch)
    id, other = [await store.create_session(created()) for _ in range(2)]
    log, bystander = await store.lease(id), await store.lease(other)
    broken = result(b"content")
    broken.blobs.clear()
    futures = [log.submit(words("before")), log.submit(broken), log.submit(words("after"))]
    fine = bystander.submit(words("unharmed"))
    assert (await futures[0]).seq == 2
    for future in futures[1:]:
        with pytest.raises(MissingBlob, match="names content that is not stored"):
            await future
    assert (await fine).seq == 2
    assert (await log.submit(words("later"))).seq == 3
    texts = [item.data.get("text") for item in await store.events(id, after=1)]
    assert texts == ["before", "later"]


async def test_content_under_a_wrong_name_is_refused(store: Store) -> None:
    log = await store.lease(await store.create_session(created()))
    draft = result(b"one thing")
    draft.blobs[content_hash(b"one thing")] = b"another"
    with pytest.raises(MissingBlob, match="whose content is"):
        await log.submit(draft)


async def test_data_without_a_json_form_is_refused_at_once(store: Store) -> None:
    log = await store.lease(await store.create_session(created()))
    with pytest.raises(LogError, match="what JSON cannot"):
        log.submit(Draft(type="text", data={"when": object()}))
    assert (await log.submit(words())).seq == 2


async def test_numbers_that_a_column_cannot_hold_harm_nobody_else(store: Store) -> None:
    id, other = [await store.create_session(created()) for _ in range(2)]
    log, bystander = await store.lease(id), await store.lease(other)
    bad = log.submit(Draft(type="text", data={}, turn=1 << 70))
    good = [bystander.submit(words(str(index))) for index in range(3)]
    with pytest.raises(LogError, match="could not be stored"):
        await bad
    assert [item.seq for item in await asyncio.gather(*good)] == [2, 3, 4]
    assert (await log.submit(words())).seq == 2


async def test_far_too_much_at_once_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "QUEUE_EVENTS", 50)
    monkeypatch.setattr(recorder_module, "QUEUE_BYTES", 1 << 20)
    log = await store.lease(await store.create_session(created()))
    futures = [log.submit(words()) for _ in range(50)]
    with pytest.raises(Backlog, match="50 events"):
        log.submit(words())
    await asyncio.gather(*futures)
    futures = [log.submit(result(bytes(600_000)))]
    with pytest.raises(Backlog, match="bytes"):
        log.submit(result(bytes(600_001)))
    await asyncio.gather(*futures)
    assert (await log.submit(result(bytes(3 << 20)))).seq == 53


async def test_a_cancelled_wait_takes_nothing_back(store: Store) -> None:
    id = await store.create_session(created())
    log = await store.lease(id)
    future = log.submit(words("kept"))
    future.cancel()
    await log.submit(words("next"))
    assert [item.data["text"] for item in await store.events(id, after=1)] == ["kept", "next"]


async def test_equal_content_is_stored_once(store: Store, url: str) -> None:
    log = await store.lease(await store.create_session(created()))
    text = b"the same line over and over\n" * 4000
    await asyncio.gather(*(log.submit(result(text)) for _ in range(5)))
    [row] = (await tables(url))["blobs"]
    assert (row["size"], row["refs"], row["codec"]) == (len(text), 5, "zstd")
    assert len(row["data"]) < len(text) / 20
    assert await log.blob(content_hash(text)) == text
    noise = random.Random(1).randbytes(50_000)
    await log.submit(result(noise))
    assert await log.blob(content_hash(noise)) == noise
    sizes = {row["codec"]: len(row["data"]) for row in (await tables(url))["blobs"]}
    assert sizes["raw"] == 50_000
