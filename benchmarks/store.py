"""How fast the log is: commits in groups, the wait of 64 busy sessions, reading, opening.

    python -m benchmarks.store [--db URL] [--json]

Without `--db`, on a new SQLite file in a temporary folder. Exits with 1 when a budget is missed.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from agent.events import Draft, Event, SessionCreated, Text, draft
from server.store import SessionLog, Store

BYTES = 870
"""Mean size of an event's data in real sessions."""


@dataclass(frozen=True, slots=True)
class Measure:
    """`most`: the value must not be above the budget; otherwise not below it."""

    name: str
    value: float
    unit: str
    budget: float
    most: bool = True

    @property
    def kept(self) -> bool:
        return self.value <= self.budget if self.most else self.value >= self.budget


def event(offset: int = 0) -> Draft:
    return draft("text", Text(messageId="m", offset=offset, text="x" * (BYTES - 50)))


async def new_session(store: Store) -> SessionLog:
    created = SessionCreated(workspace="/bench", user_id="local", model="none", mode="ask", profile="full")
    return await store.lease(await store.create_session(created))


async def append(store: Store) -> list[Measure]:
    """20,000 events of one session as fast as they are taken."""
    log = await new_session(store)
    best = 0.0
    for _ in range(3):
        began = time.perf_counter()
        futures = [log.submit(event()) for _ in range(20_000)]
        await futures[-1]
        best = max(best, 20_000 / (time.perf_counter() - began))
    return [Measure("append in groups", best, "events/s", 5_000, most=False)]


async def alone(store: Store) -> list[Measure]:
    """One event at a time, each awaited: the commit of a quiet session."""
    log, waits = await new_session(store), list[float]()
    for index in range(400):
        began = time.perf_counter()
        await log.submit(event(index))
        waits.append((time.perf_counter() - began) * 1e3)
    return [Measure("commit of a quiet session, p50", statistics.median(waits), "ms", 5)]


async def sixty_four(store: Store) -> list[Measure]:
    """64 sessions, each with 20 events a second, spread evenly: from submission to durable.

    The best of three rounds: what else runs on the machine should not be measured.
    """
    rounds = [await _talk(store, seconds=3.0) for _ in range(3)]
    best = min(rounds, key=lambda cut: cut[1])
    return [
        Measure("64 sessions x 20 events/s, p50", best[0], "ms", 30),
        Measure("64 sessions x 20 events/s, p95", best[1], "ms", 60),
        Measure("64 sessions x 20 events/s, processor", min(cut[2] for cut in rounds), "% of a core", 60),
    ]


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


async def reading(store: Store) -> list[Measure]:
    """A session of 100,000 events: its first page, its last, and all of it."""
    log = await new_session(store)
    for _ in range(10):
        futures = [log.submit(event()) for _ in range(10_000)]
        await futures[-1]

    async def fastest(
        read: Callable[[], Awaitable[object]], clock: Callable[[], float] = time.perf_counter
    ) -> float:
        times: list[float] = []
        for _ in range(3):
            began = clock()
            await read()
            times.append(clock() - began)
        return min(times)

    id = log.session_id
    whole = await fastest(lambda: store.all_events(id), time.process_time)
    return [
        Measure("first page of 100,000 events", await fastest(lambda: store.events(id)) * 1e3, "ms", 100),
        Measure(
            "last page of 100,000 events",
            await fastest(lambda: store.events(id, after=99_000)) * 1e3,
            "ms",
            100,
        ),
        Measure("all of 100,000 events, processor time", whole, "s", 4),
    ]


def opening(url: str) -> list[Measure]:
    """Processor time of a new process from its first import to an open store."""
    script = (
        "import asyncio, sys, time; began = time.process_time()\n"
        "from server.store import Store\n"
        "async def main():\n"
        "    async with await Store.open(sys.argv[1]): print(time.process_time() - began)\n"
        "asyncio.run(main())"
    )
    root = Path(__file__).resolve().parents[1]
    spent = [float(subprocess.check_output([sys.executable, "-c", script, url], cwd=root)) for _ in range(5)]
    return [Measure("import and open, processor time", min(spent), "s", 0.35)]


async def measure(url: str) -> list[Measure]:
    async with await Store.open(url) as store:
        measures = [
            *await append(store),
            *await alone(store),
            *await sixty_four(store),
            *await reading(store),
        ]
    return [*measures, *await asyncio.to_thread(opening, url)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--db", help="URL of an empty database")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measures = asyncio.run(measure(arguments.db or f"sqlite:///{folder}/etude.db"))
    for item in measures:
        if arguments.json:
            print(json.dumps({**asdict(item), "kept": item.kept}))
        else:
            bound = "at most" if item.most else "at least"
            mark = "" if item.kept else "   MISSED"
            print(f"{item.name:40} {item.value:12,.2f} {item.unit:12} {bound} {item.budget:,g}{mark}")
    return 0 if all(item.kept for item in measures) else 1


if __name__ == "__main__":
    sys.exit(main())
