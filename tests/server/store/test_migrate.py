"""The schema: made by the migrations, equal to the tables, checked cheaply, never downgraded."""

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from server.store import NewerSchema, Store
from server.store.database import Database, open_backend
from server.store.migrate import HEAD, REVISIONS, SCRIPTS
from server.store.tables import metadata
from tests.support.log_events import created

OPEN = """
import asyncio, json, sys, time
began = time.process_time()
from server.store import Store

async def main():
    async with await Store.open(sys.argv[1]) as store:
        spent = time.process_time() - began
        rows = await store.sessions()
        print(json.dumps({"modules": sorted(sys.modules), "cpu_s": spent, "sessions": len(rows)}))

asyncio.run(main())
"""


async def opened(url: str, root: Path | None = None) -> tuple[int, str, str]:
    """Open the database in another process, started outside the repository."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-c", OPEN, url),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(root or Path.cwd())},
    )
    out, error = await process.communicate()
    return process.returncode or 0, out.decode(), error.decode()


def test_the_code_knows_every_revision() -> None:
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS))
    scripts = ScriptDirectory.from_config(config)
    assert scripts.get_heads() == [HEAD]
    assert [script.revision for script in scripts.walk_revisions()][::-1] == list(REVISIONS)


async def test_the_migrations_make_the_tables(store: Store, url: str) -> None:
    database = Database(open_backend(url))
    differences = await database.read(
        lambda connection: compare_metadata(MigrationContext.configure(connection), metadata)
    )
    await database.close()
    assert differences == []


async def test_events_are_kept_by_key(store: Store, sqlite_url: str, url: str) -> None:
    if url != sqlite_url:
        return
    database = Database(open_backend(url))
    query = text("SELECT sql FROM sqlite_master WHERE name = 'events'")
    statement = await database.read(lambda connection: connection.execute(query).scalar_one())
    await database.close()
    assert "WITHOUT ROWID" in statement


async def test_an_up_to_date_database_opens_without_alembic(url: str) -> None:
    async with await Store.open(url) as store:
        await store.create_session(created())
    code, out, error = await opened(url)
    assert code == 0, error
    report = json.loads(out)
    assert not {"alembic", "mako", "sqlalchemy.orm", "psutil", "openai"} & set(report["modules"])
    assert report["sessions"] == 1
    # Twice the budget that `benchmarks/store.py` measures on a quiet machine.
    assert report["cpu_s"] < 0.7


async def test_many_processes_may_start_on_an_empty_database(url: str) -> None:
    results = await asyncio.gather(*(opened(url) for _ in range(5)))
    assert [code for code, _, _ in results] == [0] * 5, [error for _, _, error in results]


async def test_a_newer_database_is_refused(url: str) -> None:
    async with await Store.open(url):
        pass
    database = Database(open_backend(url))
    await database.write(lambda c: c.execute(text("UPDATE alembic_version SET version_num = '9999'")))
    await database.close()
    with pytest.raises(NewerSchema, match="at revision 9999, this Etude knows revisions up to"):
        await Store.open(url)


async def test_the_migrations_travel_with_the_package(tmp_path: Path) -> None:
    """From an installed copy, under a folder whose name would mislead a configuration file."""
    root = tmp_path / "site 100%(x)s packages"
    here = Path(__file__).resolve().parents[3]
    for room in ("tools", "agent", "server", "migrations"):
        shutil.copytree(here / room, root / room, ignore=shutil.ignore_patterns("__pycache__"))
    code, out, error = await opened(f"sqlite:///{tmp_path}/etude.db", root)
    assert code == 0, error
    assert '"sessions": 0' in out
