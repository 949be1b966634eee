"""What a server costs by itself: its start, its memory, what it adds to a turn, attaching to a long session.

    python -m benchmarks.serving [--quick] [--json] [--only GROUP]

Processor time for the start, wall time in milliseconds for the rest; the least of several counts.
"""

import asyncio
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import psutil

from agent.events import SessionCreated, Text, draft
from benchmarks.measure import Budget, Group, Measure, main, proportional
from benchmarks.streaming import direct, processor_s, system, talk
from server.store import Store
from tests.support.acp import AcpClient
from tests.support.scripted_model import ScriptedProcess
from tests.support.served import Served

START = Budget("start → first answer", "CPU-s", 1.5)
IDLE = Budget("idle server", "MB", 150)
ANSWERED = Budget("idle server that has answered", "MB", 150)
SESSION = Budget("one idle session with its shell", "MB", 2)
TURN = Budget("turn overhead, warm", "ms", 100, wall=True)
ATTACH = Budget("attach to 100,000 events, first frame", "ms", 100, wall=True)

EVENTS = 100_000
SESSIONS = 40
MB = 1e6


async def start(quick: bool) -> list[Measure]:
    """From the process's first instruction to its first answered prompt; its database exists already.

    The processor time of its children (git, probes, the sandbox) is counted in.
    """
    spent: list[float] = []
    own: list[float] = []
    ready: list[float] = []
    idle = answered = 0.0
    with tempfile.TemporaryDirectory() as folder, ScriptedProcess(["hello"], Path(folder)) as model:
        server = Served("--mode", "full", model_url=model.base_url)
        await _make_database(server)
        for _ in range(1 if quick else 4):
            server.start()
            process = psutil.Process(server.info["pid"])
            await asyncio.sleep(0.5)
            idle = process.memory_info().rss / MB
            ready.append(processor_s(process))
            async with server.client() as client:
                await talk(client, await client.new_session(server.workspace))
                own.append(processor_s(process))
                spent.append(own[-1] + _children_s(process))
            answered = process.memory_info().rss / MB
            server.stop()
        server.close()
    detail = f"server alone {min(own):.2f}, ready to serve after {min(ready):.2f}"
    return [START.of(min(spent), detail), IDLE.of(idle), ANSWERED.of(answered)]


async def _make_database(server: Served) -> None:
    """The database of a server that was never started."""
    server.data.mkdir()
    async with await Store.open(f"sqlite:///{server.data / 'etude.db'}"):
        pass


def _children_s(process: psutil.Process) -> float:
    """Seconds of processor time of all children, those that have ended included."""
    ended = process.cpu_times()
    living = sum(processor_s(child) for child in process.children(recursive=True))
    return ended.children_user + ended.children_system + living


async def sessions(quick: bool) -> list[Measure]:
    """What a turn takes beside the model, and what each session keeps once its turn has ended."""
    async with system([{"text": "ok"}]) as (server, model), server.client() as client:
        return [await _turn(server, client, model.base_url, quick), await _memory(server, client, quick)]


async def _turn(server: Served, client: AcpClient, model_url: str, quick: bool) -> Measure:
    """A turn of one short answer, less the same request made straight to the model."""
    rounds: list[tuple[float, float]] = []
    session = await client.new_session(server.workspace)
    await talk(client, session)
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        await direct(http, model_url)
        for _ in range(3 if quick else 8):
            turns, bare = list[float](), list[float]()
            for _ in range(10):
                turns.append(await _milliseconds(talk(client, session)))
                bare.append(await _milliseconds(direct(http, model_url)))
            rounds.append((statistics.median(turns), statistics.median(bare)))
    whole, bare_ms = min(rounds, key=lambda one: one[0] - one[1])
    return TURN.of(whole - bare_ms, f"{whole:.1f} − {bare_ms:.1f}, medians")


async def _milliseconds(action: Coroutine[Any, Any, Any]) -> float:
    began = time.perf_counter()
    await action
    return (time.perf_counter() - began) * 1000


async def _memory(server: Served, client: AcpClient, quick: bool) -> Measure:
    """What each further session adds, its shell and sandbox included."""
    count = SESSIONS // 4 if quick else SESSIONS
    process = psutil.Process(server.info["pid"])
    for _ in range(3):
        await talk(client, await client.new_session(server.workspace))
    before, server_before = proportional(process), process.memory_info().rss
    for _ in range(count):
        await talk(client, await client.new_session(server.workspace))
    await asyncio.sleep(0.5)
    each = (proportional(process) - before) / count / MB
    own = (process.memory_info().rss - server_before) / count / MB
    return SESSION.of(each, f"{own:.2f} of it in the server")


async def attach(quick: bool) -> list[Measure]:
    """From the request to the first event that comes back. The server has never seen the session."""
    waits: list[float] = []
    server = Served("--mode", "full", model_url="http://127.0.0.1:9/v1")
    session = await write_long_session(server)
    for _ in range(1 if quick else 4):
        server.start()
        came: list[float] = []

        def note(message: dict[str, Any], came: list[float] = came) -> None:
            if message.get("method") in ("_etude/event", "session/update"):
                came.append(time.perf_counter())

        async with server.client(on_frame=note) as client:
            began = time.perf_counter()
            await client.send("_etude/attach", sessionId=session, afterSeq=0)
            await client.until(lambda _, came=came: came)
            waits.append((came[0] - began) * 1000)
        server.stop()
    server.close()
    return [ATTACH.of(min(waits))]


async def write_long_session(server: Served) -> str:
    """A session of 100,000 events in the database of a server that was not started yet; its id.

    The store makes the session and its first two events; the rest are copies of the second, put beside it.
    """
    await _make_database(server)
    path = server.data / "etude.db"
    async with await Store.open(f"sqlite:///{path}") as store:
        record = SessionCreated(
            workspace=str(server.workspace), user_id="local", model="m", mode="full", profile="full"
        )
        session = await store.create_session(record)
        log = await store.lease(session)
        await log.submit(draft("text", Text(messageId="m", offset=0, text="x" * 60), turn=1))
        await log.release()
    await asyncio.to_thread(_fill, str(path), session)
    async with await Store.open(f"sqlite:///{path}") as store:
        row, last = await store.session(session), await store.events(session, after=EVENTS - 1)
        if row.last_seq != EVENTS or last[0].data["offset"] != 60 * (EVENTS - 2):
            raise RuntimeError(f"the long session was not written as the store reads it: {row}")
    return session


def _fill(path: str, session: str) -> None:
    connection = sqlite3.connect(path)
    columns = [row[1] for row in connection.execute("PRAGMA table_info(events)")]
    second = connection.execute("SELECT * FROM events WHERE session_id = ? AND seq = 2", [session]).fetchone()
    model = dict(zip(columns, second, strict=True))
    data = orjson.loads(model["payload"])

    def rows() -> Iterator[list[Any]]:
        for seq in range(3, EVENTS + 1):
            payload = orjson.dumps(data | {"offset": 60 * (seq - 2)})
            yield list((model | {"seq": seq, "payload": payload}).values())

    places = ", ".join("?" * len(columns))
    with connection:
        connection.executemany(f"INSERT INTO events VALUES ({places})", rows())
        connection.execute("UPDATE sessions SET last_seq = ? WHERE id = ?", [EVENTS, session])
    connection.close()


GROUPS = {
    "start": Group(start, (START, IDLE, ANSWERED)),
    "sessions": Group(sessions, (TURN, SESSION)),
    "attach": Group(attach, (ATTACH,)),
}

if __name__ == "__main__":
    sys.exit(main(GROUPS, __doc__))
