"""Upkeep of a server's disk: what is old goes, what is needed stays, whatever ends it in the middle."""

import asyncio
import logging
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from server.hub import Hub
from server.metrics import Metrics
from server.settings import Settings
from server.store import Store, UnknownSession
from server.store import tables as shape
from server.upkeep import DAY_S, KEPT_DAYS, Pace, Upkeep
from tests.support.log_events import created, ended, prompt, started, words
from tools.index.claim import NOTE
from tools.snapshots import SnapshotStore, UnknownSnapshot

DAY = 86_400_000_000
HERE = Path(__file__).resolve().parents[3]


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ETUDE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("ETUDE_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
async def make(store: Store, folders: Path) -> AsyncIterator[Callable[..., Hub]]:
    hubs: list[Hub] = []

    def hub(**tables: Any) -> Hub:
        hubs.append(Hub(Settings.model_validate(tables), store, Metrics(), []))
        return hubs[-1]

    yield hub
    for one in hubs:
        await one.stop()


async def used(store: Store, days_ago: float, **fields: Any) -> str:
    """A session with a turn, last used so long ago."""
    id = await store.create_session(created(**fields))
    log = await store.lease(id)
    for item in (prompt("go"), started(), words(f"of {id}"), ended()):
        await log.submit(item)
    await log.release()
    await aged(store, id, days_ago)
    return id


async def aged(store: Store, id: str, days_ago: float) -> None:
    at = time.time_ns() // 1000 - int(days_ago * DAY)
    change = update(shape.sessions).where(shape.sessions.c.id == id).values(updated=at)
    await store._database.write(lambda connection: connection.execute(change) and None)


async def ids(store: Store) -> set[str]:
    return {row.id for row in await store.sessions(limit=1000)}


def put_back(folder: Path, days: float, only: str | None = None) -> None:
    """Make files as old as this."""
    at = time.time() - days * DAY_S
    for path in folder.rglob(only or "*"):
        os.utime(path, (at, at))


# ---- sessions


async def test_sessions_stay_unless_it_is_said_for_how_long(store: Store, make: Callable[..., Hub]) -> None:
    id = await used(store, 5000)
    assert await make().upkeep().expired() == 0
    assert await ids(store) == {id}


async def test_sessions_that_were_not_used_for_so_long_are_deleted(
    store: Store, make: Callable[..., Hub], caplog: pytest.LogCaptureFixture
) -> None:
    old, recent = await used(store, 31), await used(store, 29)
    many = [await used(store, 40) for _ in range(3)]
    hub = make(privacy={"retention_days": 30})
    with caplog.at_level(logging.WARNING):
        assert await hub.upkeep().expired() == 4
    assert await ids(store) == {recent}
    for id in (old, *many):
        assert f"session {id} was deleted" in caplog.text
    assert await hub.upkeep().expired() == 0
    assert await hub.upkeep().expired(now_us=time.time_ns() // 1000 + 2 * DAY) == 1


async def test_what_was_said_of_a_workspace_counts_for_it(store: Store, make: Callable[..., Hub]) -> None:
    short, long = await used(store, 8, workspace="/code/short"), await used(store, 8, workspace="/code/long")
    await store.set_consent("/code/short", "metrics", retention_days=7)
    assert await make().upkeep().expired() == 1
    assert await ids(store) == {long}
    await store.set_consent("/code/long", "metrics", retention_days=100)
    assert await make(privacy={"retention_days": 1}).upkeep().expired() == 0
    assert short not in await ids(store)


async def test_what_is_open_stays(store: Store, make: Callable[..., Hub], folders: Path) -> None:
    hub = make(privacy={"retention_days": 30})
    held, watched, idle = [await used(store, 90, workspace=str(folders)) for _ in range(3)]
    lease = await store.lease(held)
    await aged(store, held, 90)
    live = await hub.find(watched, "local")
    live.subscribers[None] = None  # type: ignore[index, assignment]
    await hub.find(idle, "local")  # in memory, and nobody has anything of it
    assert await hub.upkeep().expired() == 1
    assert await ids(store) == {held, watched}
    assert idle not in hub.sessions
    await lease.release()
    live.subscribers.clear()
    await aged(store, held, 90)
    assert await hub.upkeep().expired() == 2


async def test_a_session_that_is_used_meanwhile_stays(store: Store, make: Callable[..., Hub]) -> None:
    id = await used(store, 90)
    row = await store.session(id)
    await aged(store, id, 0)
    before = time.time_ns() // 1000 - 30 * DAY
    assert await make().expire(row, before) is False
    assert await store.expire_session(id, before) is None
    assert await ids(store) == {id}
    with pytest.raises(UnknownSession):
        await store.expire_session("01JUNKNOWN", before)


async def test_a_fork_keeps_what_it_reads_and_what_it_needs(
    store: Store, make: Callable[..., Hub], folders: Path
) -> None:
    hub = make(privacy={"retention_days": 30})
    parent = await used(store, 90)
    snapshots = hub.opener.snapshots
    name = await snapshots.put(b"of the parent")
    await snapshots.hold(parent, [name])
    fork = await store.create_session(created(parent_id=parent, fork_seq=4))
    seen = [event.data for event in await store.all_events(fork)]
    assert await hub.upkeep().expired() == 1
    assert [event.data for event in await store.all_events(fork)] == seen
    put_back(snapshots.folder, 90)
    await hub.upkeep().states()
    assert await snapshots.read(name) == b"of the parent"
    assert not (snapshots.folder / "refs" / parent).exists()


# ---- states


async def state(hub: Hub, owner: str, root: Path, number: int) -> tuple[str, str]:
    """A state of a workspace that an owner holds, with an edit's content of its own."""
    (root / "data.bin").write_bytes(random.Random(number).randbytes(100_000))
    snapshot = await hub.opener.snapshots.take(root)
    edit = await hub.opener.snapshots.put(f"edit {number}".encode())
    await hub.opener.snapshots.hold(owner, [snapshot.tree, edit])
    return snapshot.tree, edit


async def test_old_states_go_when_there_is_no_room_and_recent_ones_never(
    store: Store, make: Callable[..., Hub], folders: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = folders / "repo"
    root.mkdir()
    hub = make(store={"snapshots_gb": 0.000_01})
    snapshots = hub.opener.snapshots
    old, recent, opened = await used(store, 90), await used(store, 2), await used(store, 90)
    lease = await store.lease(opened)
    await aged(store, opened, 90)
    elsewhere = "session-of-another-database"
    names = {one: await state(hub, one, root, n) for n, one in enumerate((old, recent, opened, elsewhere))}
    put_back(snapshots.folder, KEPT_DAYS + 5)
    os.utime(snapshots.folder / "refs" / elsewhere)
    freed = await hub.upkeep().states()
    assert freed > 90_000
    assert "1 old states were deleted" in caplog.text
    for owner, (tree, edit) in names.items():
        assert (await snapshots.read(edit)).startswith(b"edit")
        if owner == old:
            with pytest.raises(UnknownSnapshot):
                await snapshots.entries(tree)
        else:
            assert b"data.bin" in await snapshots.entries(tree)
    await lease.release()
    assert await hub.upkeep().states() > 90_000  # nobody has it open any more
    assert await hub.upkeep().states() == 0
    later = time.time_ns() // 1000 + (KEPT_DAYS + 1) * DAY
    assert await hub.upkeep().states(now_us=later) > 90_000


async def test_states_that_have_room_stay_and_what_nobody_holds_goes(
    store: Store, make: Callable[..., Hub], folders: Path
) -> None:
    root = folders / "repo"
    root.mkdir()
    hub = make()
    assert await hub.upkeep().states() == 0
    assert not hub.opener.snapshots.folder.exists()
    tree, _ = await state(hub, await used(store, 300), root, 1)
    alone = await hub.opener.snapshots.put(b"nobody's")
    assert await hub.upkeep().states() == 0  # too young: somebody may be about to need it
    put_back(hub.opener.snapshots.folder, 300)
    assert await hub.upkeep().states() > 0
    assert b"data.bin" in await hub.opener.snapshots.entries(tree)
    with pytest.raises(UnknownSnapshot):
        await hub.opener.snapshots.read(alone)


# ---- the rest


async def test_contents_that_no_event_names_go(store: Store, make: Callable[..., Hub]) -> None:
    [old, young] = await store.put_blobs([b"a" * 500, b"b" * 500])
    change = update(shape.blobs).where(shape.blobs.c.hash == old).values(created=1)
    await store._database.write(lambda connection: connection.execute(change) and None)
    assert await make().upkeep().contents() == 1
    assert await store.blob(young) == b"b" * 500


async def test_indexes_of_workspaces_that_are_gone_go(
    store: Store, make: Callable[..., Hub], folders: Path
) -> None:
    index = folders / "cache" / "index" / "0123"
    index.mkdir(parents=True)
    (index / NOTE).write_bytes(os.fsencode(folders / "no-such-folder"))
    (index / "site").write_bytes(b"x" * 50_000)
    assert await make().upkeep().indexes() > 0
    assert not index.exists()


async def test_a_database_gives_room_back(url: str, folders: Path) -> None:
    async with await Store.open(url) as store:
        contents = [random.Random(n).randbytes(100_000) for n in range(80)]
        await store.put_blobs(contents)
        assert await store.sweep(older_us=-DAY) == 80
        pauses = 0

        async def pause() -> None:
            nonlocal pauses
            pauses += 1

        freed = await store.tidy(pause)
        assert await store.tidy(pause) == 0
    if url.startswith("sqlite"):
        assert freed > 7_000_000
        assert pauses > 2
        assert (folders / "etude.db").stat().st_size < 2_000_000
        check = sqlite3.connect(folders / "etude.db").execute("PRAGMA integrity_check").fetchone()
        assert check == ("ok",)
    else:
        assert freed == 0


async def test_an_older_database_keeps_its_size(folders: Path) -> None:
    path = folders / "old.db"
    connection = sqlite3.connect(path)
    connection.executescript("CREATE TABLE t (x); INSERT INTO t VALUES (randomblob(1000000)); DELETE FROM t;")
    connection.close()
    async with await Store.open(f"sqlite:///{path}") as store:
        assert await store.tidy(lambda: asyncio.sleep(0)) == 0


async def test_it_waits_for_a_moment_without_a_turn_but_not_for_ever(store: Store, folders: Path) -> None:
    answers = [True, True, True, False]
    asked: list[bool] = []

    def busy() -> bool:
        asked.append(answers.pop(0) if answers else always)
        return asked[-1]

    async def keep(*_: Any) -> bool:
        return False

    always = False
    upkeep = Upkeep(
        Settings(), store, SnapshotStore(folders / "s"), folders / "c",
        busy=busy, opened=tuple, expire=keep, pace=Pace(first=0, every=0, patience=0.01, look=0.001),
    )  # fmt: skip
    await upkeep.once()
    assert asked[:4] == [True, True, True, False]
    always = True
    asked.clear()
    await upkeep.once()
    assert all(asked) and 50 <= len(asked) <= 80
    always = False
    asked.clear()
    running = asyncio.create_task(upkeep.run())
    while len(asked) < 20:
        await asyncio.sleep(0.001)
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()


async def test_what_fails_is_logged_and_the_rest_is_done(
    store: Store, make: Callable[..., Hub], folders: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hub = make()
    (folders / "data").mkdir(exist_ok=True)
    await hub.opener.snapshots.put(b"x")
    objects = hub.opener.snapshots.folder / "objects"
    objects.rename(objects.with_name("moved"))
    index = folders / "cache" / "index" / "0123"
    index.mkdir(parents=True)
    (index / NOTE).write_bytes(os.fsencode(folders / "no-such-folder"))
    await hub.upkeep().once()
    assert "upkeep: states was not done" in caplog.text
    assert not index.exists()


async def test_a_server_that_stops_takes_its_upkeep_along(store: Store, make: Callable[..., Hub]) -> None:
    hub = make()
    hub.start()
    await asyncio.sleep(0)
    [task] = [task for task in asyncio.all_tasks() if task.get_name() == "upkeep"]
    await hub.stop()
    assert task.cancelled()


# ---- being killed

KEEPER = """
import asyncio, os, sys, time
from server.hub import Hub
from server.metrics import Metrics
from server.settings import Settings
from server.store import Store

async def work():
    store = await Store.open(sys.argv[1])
    settings = Settings.model_validate({"privacy": {"retention_days": 30}, "store": {"snapshots_gb": 1e-5}})
    hub = Hub(settings, store, Metrics(), [])
    os.write(1, b"ready\\n")
    await hub.upkeep().once()
    os.write(1, b"done\\n")
    await hub.stop()
    await store.close()

asyncio.run(work())
"""


async def test_killed_amid_its_work_it_loses_nothing_and_ends_the_next_time(url: str, folders: Path) -> None:
    root = folders / "repo"
    root.mkdir()
    async with await Store.open(url) as store:
        hub = Hub(Settings(), store, Metrics(), [])
        old = [await used(store, 90) for _ in range(24)]
        kept = [await used(store, 1) for _ in range(3)]
        for parent in old[::8]:
            kept.append(await store.create_session(created(parent_id=parent, fork_seq=4)))
        names = {one: await state(hub, one, root, n) for n, one in enumerate([*old, *kept[:3]])}
        logs = {one: [event.data for event in await store.all_events(one)] for one in kept}
        inherited = dict(zip(kept[3:], old[::8], strict=True))
        await hub.stop()
    folder = folders / "data" / "snapshots"
    put_back(folder, 90)
    for one in kept[:3]:
        os.utime(folder / "refs" / one)
    draw = random.Random(7)
    for _ in range(6):
        keeper = subprocess.Popen(
            [sys.executable, "-c", KEEPER, url], cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert keeper.stdout is not None
        assert keeper.stdout.readline() == b"ready\n"
        await asyncio.sleep(draw.uniform(0, 0.15))
        keeper.send_signal(signal.SIGKILL)
        keeper.wait()
        keeper.stdout.close()
        snapshots = SnapshotStore(folder)
        async with await Store.open(url) as store:
            for one in kept:
                assert [event.data for event in await store.all_events(one)] == logs[one]
            for one in await ids(store):
                if one in names:
                    assert (await snapshots.read(names[one][1])).startswith(b"edit")
            for one in kept[:3]:
                assert b"data.bin" in await snapshots.entries(names[one][0])
            for parent in inherited.values():
                assert (await snapshots.read(names[parent][1])).startswith(b"edit")
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", KEEPER, url], cwd=HERE, capture_output=True, check=True
    )
    assert done.stdout == b"ready\ndone\n"
    async with await Store.open(url) as store:
        assert await ids(store) == set(kept)
