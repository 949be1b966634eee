"""Every test of the store runs on SQLite and on PostgreSQL."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest

from server.store import Store
from tests.support.postgres import postgres_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    with postgres_server() as url:
        yield url


@pytest.fixture
async def postgres_url(postgres: str) -> AsyncIterator[str]:
    """The URL of a new, empty database."""
    name = f"etude_test_{uuid4().hex[:12]}"
    connection = await asyncpg.connect(postgres)
    try:
        await connection.execute(f'CREATE DATABASE "{name}"')
        yield f"{postgres.rpartition('/')[0]}/{name}"
        await connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    finally:
        await connection.close()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/etude.db"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    """The URL of a new, empty database of each kind."""
    return request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url")


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with await Store.open(url) as store:
        yield store
