"""The one writer of a process: gathers what all sessions submit and commits it in groups."""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from agent.events import BARRIERS, Draft, Event
from server.store.append import Outcome, append
from server.store.database import Database
from server.store.entry import Entry, encode_data, prepare
from server.store.errors import Backlog, LogError

log = logging.getLogger(__name__)

QUEUE_EVENTS: Final = 20_000
QUEUE_BYTES: Final = 512 << 20
"""What may wait for the disk, of all sessions together. A single draft may be larger."""
BATCH_EVENTS: Final = 1_000
BATCH_BYTES: Final = 16 << 20
"""What one commit holds: enough to share its cost, little enough to let other processes write."""
BUSY_EVENTS: Final = 4
GATHER_S: Final = 0.004
"""After a commit of that many events, more are waited for this long: fewer commits, unnoticeably later."""
INLINE_BYTES: Final = 64 << 10
"""Blobs of up to this size are compressed on the event loop, larger ones in a thread."""


@dataclass(slots=True)
class Pending:
    """A submitted draft. `size` counts the bytes of its data and blobs."""

    session_id: str
    term: int
    draft: Draft
    payload: bytes
    size: int
    future: "asyncio.Future[Event]"

    @property
    def holder(self) -> tuple[str, int]:
        return self.session_id, self.term

    def fail(self, error: LogError, *, heard: bool) -> None:
        """Give whoever waits an error of its own: a shared one would collect everyone's tracebacks.

        `heard`: asyncio reports it in case nobody waits.
        """
        if self.future.done():
            return
        own = error.__class__.__new__(error.__class__, *error.args)
        own.args, own.__cause__ = error.args, error.__cause__ or error
        self.future.set_exception(own)
        if not heard:
            self.future.exception()


class Recorder:
    """Events become durable in the order of `submit`, per session without gaps.

    When an event cannot be stored, everything its session submitted after it fails as well: a log has no
    holes. Other sessions go on, and so does the recorder.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._queue: deque[Pending] = deque()
        self._taken: list[Pending] = []
        self._bytes = 0
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    def submit(self, session_id: str, term: int, draft: Draft) -> "asyncio.Future[Event]":
        """Queue a draft.

        Raises:
            Backlog: 20,000 events or 512 MiB are waiting already.
            LogError: the data has no JSON form, or the store is closed.
        """
        if self._closing:
            raise LogError("the store is closed; nothing more can be recorded")
        payload = encode_data(draft)
        size = len(payload) + sum(len(content) for content in draft.blobs.values())
        if len(self._queue) >= QUEUE_EVENTS or (self._queue and self._bytes + size > QUEUE_BYTES):
            raise Backlog(
                f"{len(self._queue):,} events ({self._bytes:,} bytes) wait to be stored, more than the "
                "database takes: wait for them before submitting more"
            )
        future: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        self._queue.append(Pending(session_id, term, draft, payload, size, future))
        self._bytes += size
        self._wake.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="recorder")
            self._task.add_done_callback(self._stopped)
        return future

    async def close(self) -> None:
        """Store what was submitted, then take no more."""
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            if not self._queue:
                if self._closing:
                    return
                self._wake.clear()
                await self._wake.wait()
                continue
            batch = self._taken = self._take()
            outcomes = await self._store(batch)
            self._taken = []
            self._settle(batch, outcomes)
            if len(batch) >= BUSY_EVENTS and not self._closing:
                await asyncio.sleep(GATHER_S)

    def _take(self) -> list[Pending]:
        batch: list[Pending] = []
        size = 0
        while self._queue and len(batch) < BATCH_EVENTS:
            size += self._queue[0].size
            if batch and size > BATCH_BYTES:
                break
            batch.append(self._queue.popleft())
        self._bytes -= sum(pending.size for pending in batch)
        return batch

    async def _store(self, batch: Sequence[Pending]) -> list[Outcome]:
        """The outcome of each draft. Bad data of one session is kept from harming the others."""
        heavy = sum(pending.size for pending in batch) > INLINE_BYTES
        try:
            prepared = await asyncio.to_thread(_prepare, batch) if heavy else _prepare(batch)
            return await self._commit(prepared)
        except LogError as error:
            return [error] * len(batch)
        except (SQLAlchemyError, OSError, MemoryError, ValueError, TypeError, ArithmeticError) as error:
            sessions = list(dict.fromkeys(pending.session_id for pending in batch))
            if len(sessions) == 1:
                log.exception("session %s: its events could not be stored", sessions[0])
                failure = LogError(f"the events could not be stored: {error}")
                failure.__cause__ = error
                return [failure] * len(batch)
        apart = {id: await self._store([p for p in batch if p.session_id == id]) for id in sessions}
        each = {id: iter(outcomes) for id, outcomes in apart.items()}
        return [next(each[pending.session_id]) for pending in batch]

    async def _commit(self, prepared: list[Entry | LogError]) -> list[Outcome]:
        entries = [item for item in prepared if isinstance(item, Entry)]
        stored: list[Outcome] = []
        if entries:
            backend = self._database.backend
            barrier = any(entry.draft.type in BARRIERS for entry in entries)
            stored = await self._database.write(
                lambda connection: append(backend, connection, entries), barrier=barrier
            )
        results = iter(stored)
        return [next(results) if isinstance(item, Entry) else item for item in prepared]

    def _settle(self, batch: Sequence[Pending], outcomes: Sequence[Outcome]) -> None:
        """Tell who waits; what a failed session had submitted meanwhile fails with it."""
        failed: dict[tuple[str, int], LogError] = {}
        for pending, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Event):
                if not pending.future.done():
                    pending.future.set_result(outcome)
                continue
            first = failed.setdefault(pending.holder, outcome) is outcome
            pending.fail(outcome, heard=first)
        if failed:
            late = [pending for pending in self._queue if pending.holder in failed]
            self._queue = deque(pending for pending in self._queue if pending.holder not in failed)
            for pending in late:
                self._bytes -= pending.size
                pending.fail(failed[pending.holder], heard=False)

    def _stopped(self, task: "asyncio.Task[None]") -> None:
        """Whatever ended the task, nobody waits forever, and the next submission starts a new one."""
        self._task = None if not self._closing else self._task
        if task.cancelled() or task.exception() is not None:
            log.error("the recorder stopped", exc_info=None if task.cancelled() else task.exception())
            waiting, self._taken = [*self._taken, *self._queue], []
            self._queue.clear()
            self._bytes = 0
            error = LogError("the recorder stopped before the event was stored; open the session again")
            self._settle(waiting, [error] * len(waiting))


def _prepare(batch: Sequence[Pending]) -> list[Entry | LogError]:
    """An entry for each draft, up to the first broken one of each session and term."""
    prepared: list[Entry | LogError] = []
    broken: dict[tuple[str, int], LogError] = {}
    for pending in batch:
        holder = pending.session_id, pending.term
        if holder not in broken:
            try:
                prepared.append(prepare(*holder, pending.draft, pending.payload))
                continue
            except LogError as error:
                broken[holder] = error
        prepared.append(broken[holder])
    return prepared
