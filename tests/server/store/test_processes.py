"""Several processes on one database, and logs with very large outputs."""

import asyncio
import json
import os
import sys
import time

import pytest

from agent.events import ToolResultData
from server.store import Store
from tests.support.log_events import created, expected_references, result, tables, words

WRITERS = 10
OUTPUT_BYTES = int(os.environ.get("ETUDE_TEST_OUTPUT_MB", "10")) << 20

WRITE = """
import asyncio, os, sys
from server.store import Store
from tests.support.log_events import created, ended, result, words

async def main():
    url, size = sys.argv[1], int(sys.argv[2])
    async with await Store.open(url) as store:
        log = await store.lease(await store.create_session(created()))
        output = os.urandom(size)
        print("ready", flush=True)
        sys.stdin.readline()
        for index in range(10):
            await log.submit(words(str(index)))
        await log.submit(result(output))
        for index in range(10):
            await log.submit(ended())

asyncio.run(main())
"""

READ = """
import asyncio, json, resource, sys, time
from server.store import Store

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

async def main():
    async with await Store.open(sys.argv[1]) as store:
        [row] = await store.sessions()
        before, began = peak(), time.perf_counter()
        first = None
        seen = 0
        async for page in store.pages(row.id, size=200):
            first = first or time.perf_counter() - began
            seen += len(page)
        print(json.dumps({"events": seen, "first_s": first, "grown_mb": peak() - before}))

asyncio.run(main())
"""


async def start(script: str, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-c", script, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )


@pytest.mark.case("agent-7")
async def test_ten_processes_write_large_outputs_into_one_database(url: str) -> None:
    async with await Store.open(url):
        pass
    writers = [await start(WRITE, url, str(OUTPUT_BYTES)) for _ in range(WRITERS)]
    for writer in writers:
        assert writer.stdout is not None
        assert await writer.stdout.readline() == b"ready\n", writer.stderr and await writer.stderr.read()
    ends = await asyncio.gather(*(writer.communicate(b"go\n") for writer in writers))
    assert [(writer.returncode, error) for writer, (_, error) in zip(writers, ends, strict=True)] == [
        (0, b"")
    ] * WRITERS
    async with await Store.open(url) as store:
        rows = await store.sessions()
        assert [row.last_seq for row in rows] == [22] * WRITERS
        for row in rows:
            events = await store.all_events(row.id)
            [large] = [event for event in events if event.type == "tool.result"]
            output = ToolResultData.model_validate(large.data).output
            assert output is not None
            assert len(await store.blob(output.hash)) == OUTPUT_BYTES


@pytest.mark.case("agent-8")
@pytest.mark.timeout(240)
async def test_reading_a_log_leaves_its_large_outputs_where_they_are(url: str) -> None:
    """500 results of 5 MB: the log opens at once and fits in little memory; forks copy none of it."""
    line = b"a line of output that a tool wrote, and the next one\n" * 100_000
    async with await Store.open(url) as store:
        id = await store.create_session(created())
        log = await store.lease(id)
        for index in range(500):
            await log.submit(result(b"%d\n%b" % (index, line[: 5 << 20])))
            await log.submit(words())
        await log.release()
        reader = await start(READ, url)
        out, error = await reader.communicate()
        assert reader.returncode == 0, error
        report = json.loads(out)
        assert report["events"] == 1001
        assert report["grown_mb"] < 100
        assert report["first_s"] < 0.2
        began = time.process_time()
        fork = await store.create_session(created(parent_id=id, fork_seq=1000))
        assert len(await store.events(fork, after=990, limit=50)) == 11
        assert time.process_time() - began < 0.2
        await store.delete_session(id)
        assert len(await store.all_events(fork)) == 1001
    rows = await tables(url)
    assert {blob["hash"]: blob["refs"] for blob in rows["blobs"]} == expected_references(rows)
