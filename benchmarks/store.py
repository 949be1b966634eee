"""How fast the log is: commits in groups, the wait of 64 busy sessions, reading, opening.

    python -m benchmarks.store [--quick] [--json] [--only GROUP]

On a new SQLite file in a temporary folder, or on the empty database that `ETUDE_BENCH_DB` names by URL.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from agent.events import Draft, Event, SessionCreated, Text, draft
from benchmarks.measure import Budget, Group, Measure, main
from server.store import SessionLog, Store

APPEND = Budget("append in groups", "events/s", 5_000, most=False, wall=True)
ALONE = Budget("commit of a quiet session, p50", "ms", 5, wall=True)
MANY_P50 = Budget("64 sessions × 20 events/s → durable, p50", "ms", 30, wall=True)
MANY_P95 = Budget("64 sessions × 20 events/s → durable, p95", "ms", 60, wall=True)
MANY_CPU = Budget("64 sessions × 20 events/s, processor", "% of a core", 60)
FIRST_PAGE = Budget("first page of 100,000 events", "ms", 100, wall=True)
LAST_PAGE = Budget("last page of 100,000 events", "ms", 100, wall=True)
WHOLE = Budget("all of 100,000 events, processor time", "s", 4)
OPENING = Budget("import and open, processor time", "s", 0.35)

BYTES = 870
"""Mean size of an event's data in real sessions."""


@asynccontextmanager
async def opened() -> AsyncIterator[tuple[Store, str]]:
    """A store and its URL."""
    with tempfile.TemporaryDirectory() as folder:
        url = os.environ.get("ETUDE_BENCH_DB") or f"sqlite:///{folder}/etude.db"
        async with await Store.open(url) as store:
            yield store, url


def event(offset: int = 0) -> Draft:
    return draft("text", Text(messageId="m", offset=offset, text="x" * (BYTES - 50)))


async def new_session(store: Store) -> SessionLog:
    created = SessionCreated(workspace="/bench", user_id="local", model="none", mode="ask", profile="full")
    return await store.lease(await store.create_session(created))


async def append(quick: bool) -> list[Measure]:
    """Many events of one session as fast as they are taken."""
    count, best = 5_000 if quick else 20_000, 0.0
    async with opened() as (store, _):
        log = await new_session(store)
        for _ in range(3):
            began = time.perf_counter()
            futures = [log.submit(event()) for _ in range(count)]
            await futures[-1]
            best = max(best, count / (time.perf_counter() - began))
    return [APPEND.of(best)]


async def alone(quick: bool) -> list[Measure]:
    """One event at a time, each awaited: the commit of a quiet session."""
    waits = list[float]()
    async with opened() as (store, _):
        log = await new_session(store)
        for index in range(100 if quick else 400):
            began = time.perf_counter()
            await log.submit(event(index))
            waits.append((time.perf_counter() - began) * 1e3)
    return [ALONE.of(statistics.median(waits))]


async def sixty_four(quick: bool) -> list[Measure]:
    """64 sessions, each with 20 events a second, spread evenly: from submission to durable.

    The calmest of some rounds: what else runs on the machine should not be measured.
    """
    async with opened() as (store, _):
        rounds = [await _talk(store, seconds=2.0) for _ in range(1 if quick else 4)]
    best = min(rounds, key=lambda cut: cut[1])
    return [MANY_P50.of(best[0]), MANY_P95.of(best[1]), MANY_CPU.of(min(cut[2] for cut in rounds))]


async def _talk(store: Store, seconds: float) -> tuple[float, float, float]:
    """p50 and p95 in milliseconds, and the share of a core in percent, of one round."""
    logs = [await new_session(store) for _ in range(64)]
    waits: list[float] = []

    async def talk(log: SessionLog, index: int) -> None:
        start = time.perf_counter() + index / 64 / 20
        for turn in range(int(seconds * 20)):
            await asyncio.sleep(max(0.0, start + turn / 20 - time.perf_counter()))
            began = time.perf_counter()

            def stored(future: "asyncio.Future[Event]", began: float = began) -> None:
                waits.append((time.perf_counter() - began) * 1e3)

            log.submit(event(turn)).add_done_callback(stored)

    cpu, wall = time.process_time(), time.perf_counter()
    await asyncio.gather(*(talk(log, index) for index, log in enumerate(logs)))
    for log in logs:
        await log.release()
    busy = (time.process_time() - cpu) / (time.perf_counter() - wall) * 100
    cut = statistics.quantiles(waits, n=100)
    return cut[49], cut[94], busy


async def reading(quick: bool) -> list[Measure]:
    """A session of 100,000 events: its first page, its last, and all of it."""
    async with opened() as (store, _):
        log = await new_session(store)
        for _ in range(10):
            futures = [log.submit(event()) for _ in range(10_000)]
            await futures[-1]
        id = log.session_id
        return [
            FIRST_PAGE.of(await _fastest(lambda: store.events(id)) * 1e3),
            LAST_PAGE.of(await _fastest(lambda: store.events(id, after=99_000)) * 1e3),
            WHOLE.of(await _fastest(lambda: store.all_events(id), time.process_time)),
        ]


async def _fastest(
    read: Callable[[], Awaitable[object]], clock: Callable[[], float] = time.perf_counter
) -> float:
    """The least of three times, in seconds."""
    times: list[float] = []
    for _ in range(3):
        began = clock()
        await read()
        times.append(clock() - began)
    return min(times)


async def opening(quick: bool) -> list[Measure]:
    """Processor time of a new process from its first import to an open store."""
    script = (
        "import asyncio, sys, time; began = time.process_time()\n"
        "from server.store import Store\n"
        "async def main():\n"
        "    async with await Store.open(sys.argv[1]): print(time.process_time() - began)\n"
        "asyncio.run(main())"
    )
    root = Path(__file__).resolve().parents[1]
    async with opened() as (_, url):
        command = [sys.executable, "-c", script, url]
        spent = [
            float(await asyncio.to_thread(subprocess.check_output, command, cwd=root))
            for _ in range(2 if quick else 5)
        ]
    return [OPENING.of(min(spent))]


GROUPS = {
    "append": Group(append, (APPEND,)),
    "alone": Group(alone, (ALONE,)),
    "many": Group(sixty_four, (MANY_P50, MANY_P95, MANY_CPU)),
    "reading": Group(reading, (FIRST_PAGE, LAST_PAGE, WHOLE), quick=False),
    "opening": Group(opening, (OPENING,)),
}

if __name__ == "__main__":
    sys.exit(main(GROUPS, __doc__))
