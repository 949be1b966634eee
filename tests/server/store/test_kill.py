"""Processes that are killed while they write: what was acknowledged is there, and nothing is broken."""

import asyncio
import mmap
import os
import random
import sys
from pathlib import Path

import pytest

from agent.events import Event
from server.store import Store
from tests.support.log_events import created, expected_references, tables

MOMENTS = 40

# One process imports everything; each writer is a fork of it, so that forty of them start quickly.
WRITER = """
import asyncio, mmap, os, random, sys
from sqlalchemy import event
import sqlalchemy.dialects.sqlite.aiosqlite
from agent.events import Event
from server.store import Store
from tests.support.log_events import ended, prompt, result, words

url, session, flag = sys.argv[1:]

async def write(seed):
    rng = random.Random(seed)
    committing = mmap.mmap(os.open(flag, os.O_RDWR), 1)
    store = await Store.open(url)
    log = await store.lease(session)

    def enter(connection):
        committing[0] = 1

    def acknowledge(future):
        committing[0] = 0
        os.write(1, b"%d %s\\n" % (future.result().seq, future.result().data["mark"].encode()))

    event.listen(store._database.backend.writer, "commit", enter)
    number = 0
    while True:
        for _ in range(rng.randint(1, 12)):
            number += 1
            kind = rng.random()
            item = words() if kind < 0.7 else prompt("p") if kind < 0.8 else ended() if kind < 0.85 else None
            if item is None:
                item = result(rng.randbytes(rng.randint(1, 400_000)))
            item.data["mark"] = f"{seed}.{number}"
            last = log.submit(item)
            last.add_done_callback(acknowledge)
        await last

for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        asyncio.run(write(int(line)))
    os.write(1, b"pid %d\\n" % pid)
    os.waitpid(pid, 0)
    os.write(1, b"end\\n")
"""


@pytest.mark.kill
@pytest.mark.case("agent-6")
async def test_writers_killed_at_any_moment_lose_nothing_acknowledged(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    with capsys.disabled():
        print(f" [seed {seed}]", end="")
    rng = random.Random(seed)
    flag = tmp_path / "committing"
    flag.write_bytes(b"\0")
    async with await Store.open(url) as store:
        id = await store.create_session(created())
    writer = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", WRITER, url, id, str(flag)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    with flag.open("r+b") as file, mmap.mmap(file.fileno(), 1) as committing:
        acknowledged: dict[int, str] = {}
        events: list[Event] = []
        inside = 0
        for moment in range(MOMENTS):
            new, was_inside = await _kill_once(writer, rng, committing, moment)
            inside += was_inside
            assert not new.keys() & acknowledged.keys()
            acknowledged |= new
            async with await Store.open(url) as store:
                events = await store.all_events(id)
                assert [event.seq for event in events] == list(range(1, len(events) + 1))
                stored = {event.seq: event.data["mark"] for event in events[1:]}
                assert stored | acknowledged == stored
                assert (await store.session(id)).last_seq == len(events)
    assert writer.stdin is not None
    writer.stdin.close()
    await writer.wait()
    assert len(acknowledged) > MOMENTS
    assert inside >= MOMENTS // 4
    async with await Store.open(url) as store:
        log = await store.lease(id)
        assert log.term == MOMENTS + 1
        results = [event.data["output"] for event in events if event.type == "tool.result"]
        for output in rng.sample(results, min(20, len(results))):
            assert len(await store.blob(output["hash"])) == output["size"]
    rows = await tables(url)
    assert {blob["hash"]: blob["refs"] for blob in rows["blobs"]} == expected_references(rows)


async def _kill_once(
    writer: asyncio.subprocess.Process, rng: random.Random, committing: mmap.mmap, moment: int
) -> tuple[dict[int, str], bool]:
    """Start a writer and kill it; what it had acknowledged, and whether it was inside a commit."""
    assert writer.stdin is not None and writer.stdout is not None
    committing[0] = 0
    writer.stdin.write(b"%d\n" % rng.randrange(1 << 32))
    line = await writer.stdout.readline()
    acknowledged: dict[int, str] = {}

    async def read() -> int | None:
        """Acknowledgements up to the end of the writer; its pid is among them."""
        nonlocal line
        pid = None
        while line != b"end\n":
            first, second = line.decode().split()
            if first == "pid":
                pid = int(second)
                killing.set_result(pid)
            else:
                acknowledged[int(first)] = second
            line = await writer.stdout.readline() if writer.stdout else b"end\n"
        return pid

    killing: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    reading = asyncio.create_task(read())
    pid = await killing
    while not committing[0] and not acknowledged:
        await asyncio.sleep(0.001)
    await asyncio.sleep(rng.random() * 0.08)
    if moment % 2:
        while not committing[0]:
            await asyncio.sleep(0)
    os.kill(pid, 9)
    was_inside = bool(committing[0])
    await reading
    return acknowledged, was_inside
