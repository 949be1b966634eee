"""One database: short transactions on the connections of its writer and readers, patience when it is busy.

SQLAlchemy's Core runs here as plain functions over a `Connection`; every wait inside them yields to the event
loop. `sqlalchemy.ext.asyncio` would do the same and import the ORM with it.
"""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.util import greenlet_spawn

from server.store.backend import Backend
from server.store.errors import StoreBusy, StoreError, StoreUnavailable

T = TypeVar("T")
Work = Callable[[Connection], T]

PATIENCE_S: Final = 120.0
"""How long a busy database is tried again before anyone hears of it."""
OUTAGE_S: Final = 20.0
"""How long an unreachable server is tried again."""


def open_backend(url: str) -> Backend:
    """The backend for a URL.

    Raises:
        StoreError: the URL is of no kind we know, or the database cannot live there.
    """
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise StoreError(f"{url!r} is no database URL: expected sqlite:///PATH or postgresql://…") from error
    match parsed.get_backend_name():
        case "sqlite":
            from server.store.sqlite import Sqlite

            return Sqlite(parsed)
        case "postgresql" | "postgres":
            from server.store.postgres import Postgres

            return Postgres(parsed)
        case other:
            raise StoreError(f"no support for {other!r}: expected sqlite:///PATH or postgresql://…")


class Database:
    """Transactions run to their end even if whoever asked for them is cancelled: none is left half-way.

    Writing transactions of this process run one after the other.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._writing = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def read(self, work: Work[T]) -> T:
        """Run `work` on one consistent view of the database."""
        return await self._own(self._patiently(_look, self.backend.reader, work))

    async def write(self, work: Work[T], *, barrier: bool = False) -> T:
        """Run `work` in a transaction of the writer. It may run several times: its effects must be in the
        database alone, or be the same each time.

        Raises:
            StoreError: it could not be done; nothing of it is stored.
        """
        return await self._own(self._write(work, barrier))

    async def close(self) -> None:
        """Wait for what is under way, then let the connections go."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        await greenlet_spawn(self.backend.reader.dispose)
        await greenlet_spawn(self.backend.writer.dispose)

    async def _own(self, coroutine: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # Whoever asked may have been cancelled and never look.

    async def _write(self, work: Work[T], barrier: bool) -> T:
        def transact(engine: Engine, work: Work[T]) -> T:
            with engine.connect() as connection:
                self.backend.before(connection, barrier)
                with connection.begin():
                    self.backend.begun(connection, barrier)
                    return work(connection)

        async with self._writing:
            return await self._patiently(transact, self.backend.writer, work)

    async def _patiently(self, transact: Callable[[Engine, Work[T]], T], engine: Engine, work: Work[T]) -> T:
        began, attempt = time.monotonic(), 0
        while True:
            try:
                return await greenlet_spawn(transact, engine, work)
            except DBAPIError as error:
                problem, cause = self.backend.translate(error), error
            except OSError as error:
                # What a driver raises for a refused connection; files are SQLite's own business.
                problem, cause = (
                    StoreUnavailable(f"cannot reach the database ({error}): is the server running?"),
                    error,
                )
            if problem is None:
                raise cause
            patience = {StoreBusy: PATIENCE_S, StoreUnavailable: OUTAGE_S}.get(type(problem), 0.0)
            if time.monotonic() - began >= patience:
                raise problem from cause
            attempt += 1
            await asyncio.sleep(min(1.0, 0.01 * 2**attempt) * random.uniform(0.5, 1.0))


def _look(engine: Engine, work: Work[T]) -> T:
    with engine.connect() as connection:
        return work(connection)
