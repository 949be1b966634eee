"""What a server does for its disk when nobody waits for it: what is old goes, what is free is given back.

It begins a while after the start, then comes once a day, at a moment in which no turn runs; where turns
always run, it is done all the same some hours later. Each part is a few short transactions, or work in
threads. (Those have no lower priority: a thread that holds the interpreter and is not scheduled holds up
everybody.) Whatever ends it in the middle, the next time goes on: what is needed is never deleted.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from server.store import LogError, SessionRow, Store, StoreError
from tools.snapshots import SnapshotError, SnapshotStore

if TYPE_CHECKING:
    from server.settings import Settings

log = logging.getLogger(__name__)

DAY_S: Final = 86_400.0
KEPT_DAYS: Final = 30
"""Days for which the snapshots of a session stay after it was last used, whatever room they take."""
PAGE: Final = 200


@dataclass(frozen=True, slots=True)
class Pace:
    """When upkeep is done, in seconds: `first` after the start, then `every` so often, waiting `patience` at
    most for a moment without a turn, for which it looks again after `look`."""

    first: float = 600.0
    every: float = DAY_S
    patience: float = 6 * 3600.0
    look: float = 30.0


class Upkeep:
    """The upkeep of one server.

    `busy` says whether a turn runs, `opened` which sessions are open here. `expire` deletes a session last
    used before a time (microseconds UTC) unless it is open; False where it was left.
    """

    def __init__(
        self,
        settings: "Settings",
        store: Store,
        snapshots: SnapshotStore,
        cache: Path,
        *,
        busy: Callable[[], bool],
        opened: Callable[[], tuple[str, ...]],
        expire: Callable[[SessionRow, int], Awaitable[bool]],
        pace: Pace | None = None,
    ) -> None:
        self._settings, self._store, self._snapshots, self._cache = settings, store, snapshots, cache
        self._busy, self._opened, self._expire = busy, opened, expire
        self._pace = pace or Pace()

    async def run(self) -> None:
        """Do it again and again until cancelled."""
        await asyncio.sleep(self._pace.first)
        while True:
            await self.once()
            await asyncio.sleep(self._pace.every)

    async def once(self) -> None:
        """Every part once. One that fails is logged and keeps none of the others from it."""
        for part in (self.expired, self.contents, self.states, self.indexes, self.database):
            await self._quiet()
            try:
                await part()
            except (StoreError, LogError, SnapshotError, OSError) as error:
                log.warning("upkeep: %s was not done: %s", part.__name__, error)

    async def _quiet(self) -> None:
        for _ in range(ceil(self._pace.patience / self._pace.look)):
            if not self._busy():
                break
            await asyncio.sleep(self._pace.look)

    # ---- the parts

    async def expired(self, now_us: int | None = None) -> int:
        """Delete the sessions that nobody used for longer than they are to be kept; returns how many.

        That is `privacy.retention_days`, or what was said of their workspace; without either they stay.
        """
        now_us = time.time_ns() // 1000 if now_us is None else now_us
        usual = self._settings.privacy.retention_days
        days = {row.path: row.retention_days or usual for row in await self._store.workspaces()}
        if not any(days.values()):
            return 0
        found = 0
        async for row in self._rows():
            kept = days.get(row.workspace, usual)
            if kept is None or row.updated >= (before := now_us - kept * 86_400_000_000):
                continue
            await self._quiet()
            try:
                if not await self._expire(row, before):
                    continue
            except StoreError as error:
                log.warning("session %s is older than %d days and was not deleted: %s", row.id, kept, error)
                continue
            found += 1
            used = datetime.fromtimestamp(row.updated / 1e6, UTC).date()
            log.warning("session %s was deleted: last used on %s, kept for %d days", row.id, used, kept)
        return found

    async def contents(self) -> int:
        """Remove contents that were stored ahead of an event that never came; returns how many."""
        removed = await self._store.sweep()
        if removed:
            log.info("upkeep: %d contents that no event names were removed", removed)
        return removed

    async def states(self, now_us: int | None = None) -> int:
        """Delete what no session needs from the snapshot store, and the oldest states where it is too large;
        returns the bytes that were freed.

        States of sessions that were used in the last `KEPT_DAYS` or are open stay, and so do both sides of
        every edit as long as its session exists.
        """
        if not await asyncio.to_thread(self._snapshots.folder.is_dir):
            return 0
        since = (time.time_ns() // 1000 if now_us is None else now_us) - KEPT_DAYS * 86_400_000_000
        recent = {row.id async for row in self._rows() if row.updated >= since or row.owner is not None}

        def needed() -> Iterator[str]:
            # Asked when nobody else is in the store. Of other databases' sessions only the files are known.
            opened = self._opened()
            for owner, used in self._snapshots.owners():
                if used * 1e6 >= since or owner in recent or owner in opened:
                    yield from self._snapshots.owned(owner)

        room = self._settings.store.snapshots_gb
        swept = await self._snapshots.sweep(needed(), int(room * 2**30))
        if swept.removed:
            log.info(
                "upkeep: %d files of the snapshot store were deleted, %.1f MB; %.1f MB are left",
                swept.removed, swept.freed / 1e6, swept.left / 1e6,
            )  # fmt: skip
        if swept.dropped:
            log.warning(
                "upkeep: %d old states were deleted: they had no room in %g GiB", len(swept.dropped), room
            )
        if swept.damaged:
            log.warning("upkeep: %d states in %s cannot be read", len(swept.damaged), self._snapshots.folder)
        return swept.freed

    async def indexes(self) -> int:
        """Delete indexes of workspaces that are gone or long unused; returns the bytes that were freed."""

        def work() -> int:
            from tools.index import (
                evict,
            )  # with all of the index, which a server without sessions does not need

            return evict(self._cache)

        freed = await asyncio.to_thread(work)
        if freed:
            log.info("upkeep: indexes of %.1f MB were deleted", freed / 1e6)
        return freed

    async def database(self) -> int:
        """Let the database tidy itself and give room back; returns the bytes that were freed."""
        freed = await self._store.tidy(self._quiet)
        if freed:
            log.info("upkeep: the database is %.1f MB smaller", freed / 1e6)
        return freed

    async def _rows(self) -> AsyncIterator[SessionRow]:
        """Every session, the last used first, a page at a time."""
        before: str | None = None
        while rows := await self._store.sessions(limit=PAGE, before=before):
            for row in rows:
                yield row
            before = rows[-1].cursor
