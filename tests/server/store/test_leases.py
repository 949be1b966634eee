"""Leases: one writer per session, taken over from the dead at once and from the silent in time."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from server.store import LeaseLost, SessionBusy, Store, StoreFull, leases
from tests.support.log_events import created, started, words

HOLD = """
import asyncio, sys
from server.store import Store
from agent.events import TurnStarted, draft

async def main():
    store = await Store.open(sys.argv[1])
    log = await store.lease(sys.argv[2])
    record = TurnStarted(model="m", mode="ask", profile="full", max_steps=3)
    await log.submit(draft("turn.started", record, turn=1))
    print("held", log.term, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def hold(url: str, id: str) -> asyncio.subprocess.Process:
    """Another process that holds the session and has a turn under way."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HOLD, url, id),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert process.stdout is not None
    assert (await process.stdout.readline()).startswith(b"held")
    return process


async def test_a_session_has_one_holder(store: Store, url: str) -> None:
    id = await store.create_session(created())
    log = await store.lease(id)
    async with await Store.open(url) as second:
        for attempt in (store, second):
            with pytest.raises(SessionBusy, match=f"open in process {os.getpid()}") as busy:
                await attempt.lease(id)
            assert busy.value.owner.pid == os.getpid()
        with pytest.raises(SessionBusy):
            await second.delete_session(id)
        await log.release()
        assert (await second.lease(id)).term == 2


async def test_closing_a_store_releases_its_sessions(store: Store, url: str) -> None:
    id = await store.create_session(created())
    async with await Store.open(url) as second:
        await second.lease(id)
    assert (await store.lease(id)).term == 2


@pytest.mark.case("agent-4")
async def test_a_killed_process_leaves_no_session_running(store: Store, url: str) -> None:
    id = await store.create_session(created())
    process = await hold(url, id)
    row = await store.session(id)
    assert row.running
    assert row.owner is not None and row.owner.pid == process.pid
    with pytest.raises(SessionBusy):
        await store.lease(id)
    process.kill()
    await process.wait()
    assert not (await store.session(id)).running
    assert not (await store.sessions())[0].running
    log = await store.lease(id)
    assert log.term == 2
    assert (await log.submit(words())).seq == 3


@pytest.mark.case("agent-4")
async def test_a_stopped_process_loses_its_session_in_time(
    store: Store, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = await store.create_session(created())
    process = await hold(url, id)
    process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(SessionBusy):
            await store.lease(id)
        # Thirty seconds later by the clock that counts.
        clock = store._backend.clock
        monkeypatch.setattr(store._backend, "clock", lambda connection: clock(connection) + 31_000_000)
        assert not (await store.session(id)).running
        assert (await store.lease(id)).term == 2
    finally:
        process.kill()
        await process.wait()


def test_a_process_that_was_not_reaped_counts_as_gone() -> None:
    process = subprocess.Popen(["sleep", "60"])
    try:
        began = leases.started(process.pid)
        assert began is not None
        assert leases.started(process.pid) == began
        process.kill()
        deadline = time.monotonic() + 10
        while leases.started(process.pid) is not None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert leases.started(process.pid) is None
    finally:
        process.kill()
        process.wait()
    assert leases.started(process.pid) is None


async def test_a_lost_lease_fails_its_own_drafts_only(store: Store, url: str) -> None:
    id, other = [await store.create_session(created()) for _ in range(2)]
    log, bystander = await store.lease(id), await store.lease(other)
    await log.submit(started())
    async with await Store.open(url) as second:
        clock = second._backend.clock
        second._backend.clock = lambda connection: clock(connection) + 31_000_000
        taken = await second.lease(id)
        assert taken.term == 2
        mine = [log.submit(words(str(index))) for index in range(3)]
        fine = [bystander.submit(words(str(index))) for index in range(3)]
        for future in mine:
            with pytest.raises(LeaseLost, match="held by another process now"):
                await future
        assert [event.seq for event in await asyncio.gather(*fine)] == [2, 3, 4]
        assert (await taken.submit(words("theirs"))).seq == 3
        await log.release()
        assert (await second.session(id)).owner is not None
        texts = [event.data.get("text") for event in await store.events(id, after=2)]
        assert texts == ["theirs"]


async def test_a_deleted_session_is_a_lost_one(store: Store, url: str) -> None:
    id = await store.create_session(created())
    log = await store.lease(id)
    async with await Store.open(url) as second:
        clock = second._backend.clock
        second._backend.clock = lambda connection: clock(connection) + 31_000_000
        await second.delete_session(id)
    with pytest.raises(LeaseLost, match="deleted"):
        await log.submit(words())


async def test_leases_are_renewed_while_they_are_held(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASE_US", 400_000)
    monkeypatch.setattr(leases, "RENEW_S", 0.05)
    async with await Store.open(url) as store:
        id = await store.create_session(created())
        await store.lease(id)
        for _ in range(8):
            await asyncio.sleep(0.1)
            assert (await store.session(id)).owner is not None


async def test_a_lease_that_nobody_waits_for_is_given_back(store: Store) -> None:
    id = await store.create_session(created())
    for delay in range(30):
        taking = asyncio.create_task(store.lease(id))
        await asyncio.sleep(delay / 10_000)
        if taking.cancel():
            with suppress(asyncio.CancelledError):
                await taking
        else:
            await (await taking).release()
        assert (await store.session(id)).owner is None
    await store.lease(id)


async def test_many_stores_at_once_give_one_holder(url: str) -> None:
    stores = [await Store.open(url) for _ in range(6)]
    id = await stores[0].create_session(created())
    results = await asyncio.gather(*(store.lease(id) for store in stores), return_exceptions=True)
    assert sorted(type(item).__name__ for item in results) == ["SessionBusy"] * 5 + ["SessionLog"]
    for store in stores:
        await store.close()


async def test_a_lease_that_could_not_be_given_back_is_no_obstacle(
    store: Store, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk takes no release either: the session must not stay with a holder that let go."""
    ids = [await store.create_session(created()) for _ in range(3)]

    def full(*_: object) -> None:
        raise StoreFull("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(leases, "release", full)
        for id in ids:
            with pytest.raises(StoreFull):
                await (await store.lease(id)).release()
    async with await Store.open(url) as second:
        with pytest.raises(SessionBusy):
            await second.lease(ids[0])
        again = await store.lease(ids[0])
        assert again.term == 2
        await again.submit(words("x"))
        with pytest.raises(SessionBusy):
            await store.lease(ids[0])
        await store.delete_session(ids[1])
        monkeypatch.setattr(leases, "RENEW_S", 0.01)
        await store.close()
        assert (await second.lease(ids[2])).term == 2
