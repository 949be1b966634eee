"""What only a database server can do: be away, end connections, refuse."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from server.store import NotWritable, Store, StoreFull, StoreUnavailable
from server.store import database as database_module
from tests.support.log_events import created, words


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[Store]:
    async with await Store.open(postgres_url) as store:
        yield store


@pytest.fixture
async def admin(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


async def test_ended_connections_lose_and_repeat_nothing(store: Store, admin: asyncpg.Connection) -> None:
    """The server ends our connections at random moments, in the middle of commits too."""
    id = await store.create_session(created())
    log = await store.lease(id)
    sent = 0
    acknowledged: list[int] = []
    for _ in range(12):
        futures = [log.submit(words(str(sent + index))) for index in range(200)]
        sent += 200
        await asyncio.sleep(0.004)
        await admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'etude'"
        )
        acknowledged += [event.seq for event in await asyncio.gather(*futures)]
    assert acknowledged == list(range(2, sent + 2))
    events = await store.events(id, after=1, limit=sent + 10)
    assert [event.data["text"] for event in events] == [str(index) for index in range(sent)]


async def test_a_full_server_fails_what_waits_and_nothing_else(
    store: Store, admin: asyncpg.Connection
) -> None:
    id = await store.create_session(created())
    log = await store.lease(id)
    await log.submit(words("first"))
    await admin.execute(
        "CREATE FUNCTION no_space() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$"
    )
    await admin.execute("CREATE TRIGGER no_space AFTER INSERT ON events EXECUTE FUNCTION no_space()")
    for future in [log.submit(words(str(index))) for index in range(3)]:
        with pytest.raises(StoreFull, match="no space left"):
            await future
    assert len(await store.all_events(id)) == 2
    await admin.execute("DROP TRIGGER no_space ON events")
    assert (await log.submit(words("again"))).seq == 3


async def test_a_server_that_is_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "OUTAGE_S", 0.2)
    with pytest.raises(StoreUnavailable, match="is the server running"):
        await Store.open("postgresql://etude@127.0.0.1:1/none")


async def test_a_database_that_does_not_exist_is_named(postgres: str) -> None:
    with pytest.raises(NotWritable, match="does not exist"):
        await Store.open(f"{postgres.rpartition('/')[0]}/no_such_database")


async def test_passwords_stay_out_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "OUTAGE_S", 0.0)
    with pytest.raises(StoreUnavailable) as failure:
        await Store.open("postgresql://ada:open-sesame@127.0.0.1:1/none")
    assert "open-sesame" not in str(failure.value)
