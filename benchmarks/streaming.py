"""What the server costs between a model and a client: latency, durability, memory, start.

    python -m benchmarks.streaming [--json] [--only NAME]

Server, model and client are three processes; a word carries the time the model sent it. Each latency is
measured several times and the calmest run is judged, beside the same words read straight from the model
(`direct`). Exits with 1 when a budget is missed.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from agent.events import Draft, SessionCreated
from server.store import Store
from tests.support.acp import AcpClient
from tests.support.scripted_model import ScriptedProcess
from tests.support.served import Served

GO = [{"type": "text", "text": "go"}]
WORDS, RATE, SESSIONS, RUNS = 200, 20, 64, 3
EVENTS = 100_000
IDLE_SESSIONS = 40


@dataclass(frozen=True, slots=True)
class Measure:
    name: str
    value: float
    unit: str
    budget: float | None = None

    @property
    def kept(self) -> bool:
        return self.budget is None or self.value <= self.budget


def stamped(words: int) -> dict[str, Any]:
    return {"text": " ".join(["word"] * words), "stamp": True, "delay_ms": 1000 / RATE}


def percentiles(values: list[float]) -> tuple[float, float]:
    """Median and 95th percentile, in the unit of the values."""
    ordered = sorted(values)
    return statistics.median(ordered), ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]


def stamps(text: str) -> list[float]:
    """The times at which the model sent the words of a piece of text."""
    return [float(word.rpartition("@")[2]) for word in text.split() if "@" in word]


@asynccontextmanager
async def system(turn: dict[str, Any], folder: Path) -> AsyncIterator[tuple[Served, ScriptedProcess]]:
    """A model process and a server process."""
    with (
        ScriptedProcess([turn], folder) as model,
        Served("--mode", "full", model_url=model.base_url) as server,
    ):
        yield server, model


class Watch:
    """Notes when each word and each mark of durability came."""

    def __init__(self) -> None:
        self.delays: list[float] = []
        self.durable: list[float] = []
        self._sent: dict[str, list[tuple[int, float]]] = {}

    def __call__(self, message: dict[str, Any]) -> None:
        now, params = time.time(), message.get("params") or {}
        if message.get("method") == "_etude/stored":
            self._stored(params["messageId"], params["end"], now)
            return
        update = params.get("update") or {}
        if update.get("sessionUpdate") != "agent_message_chunk":
            return
        mark, text = params["_meta"]["etude"], update["content"]["text"]
        for sent in stamps(text):
            if mark.get("live"):
                self.delays.append((now - sent) * 1000)
            self._sent.setdefault(mark["messageId"], []).append((mark["offset"], sent))
        if "seq" in mark:
            self._stored(mark["messageId"], mark["offset"] + len(text), now)

    def _stored(self, message_id: str, end: int, now: float) -> None:
        waiting = self._sent.get(message_id, [])
        self.durable += [(now - sent) * 1000 for offset, sent in waiting if offset < end]
        self._sent[message_id] = [item for item in waiting if item[0] >= end]


async def talk(client: AcpClient, workspace: Path) -> None:
    session = await client.new_session(workspace)
    await client.call("session/prompt", sessionId=session, prompt=GO, timeout=300)


async def direct(url: str) -> list[float]:
    """The same words read straight from the model: what the machine itself adds."""
    delays: list[float] = []
    body = {
        "model": "scripted",
        "stream": True,
        "messages": [{"role": "user", "content": "go"}],
        "tools": [{}],
    }
    async with (
        httpx.AsyncClient(trust_env=False, timeout=60) as http,
        http.stream("POST", f"{url}/chat/completions", json=body) as answer,
    ):
        async for line in answer.aiter_lines():
            now = time.time()
            if line.startswith("data: {"):
                choices = json.loads(line[6:]).get("choices") or [{}]
                delays += [
                    (now - sent) * 1000 for sent in stamps(choices[0].get("delta", {}).get("content") or "")
                ]
    return delays


async def one_session() -> list[Measure]:
    runs: list[tuple[float, float, float]] = []
    straight: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        async with system(stamped(WORDS), Path(folder)) as (server, model):
            for _ in range(RUNS):
                straight.append(percentiles(await direct(model.base_url)))
                watch = Watch()
                async with server.client(on_frame=watch) as client:
                    await talk(client, server.workspace)
                    await asyncio.sleep(0.1)
                runs.append((*percentiles(watch.delays), percentiles(watch.durable)[1]))
    return [
        Measure("direct delta, p50", min(p50 for p50, _ in straight), "ms"),
        Measure("direct delta, p95", min(p95 for _, p95 in straight), "ms"),
        Measure("delta model → client, 1 session, p50", min(run[0] for run in runs), "ms", 0.6),
        Measure("delta model → client, 1 session, p95", min(run[1] for run in runs), "ms", 1.5),
        Measure("delta → durable, p95", min(run[2] for run in runs), "ms", 60),
    ]


async def many_sessions() -> list[Measure]:
    runs: list[tuple[float, float, float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        async with system(stamped(WORDS), Path(folder)) as (server, _):
            process = psutil.Process(server.info["pid"])
            for _ in range(RUNS):
                watch, before = Watch(), cpu(process)
                async with server.client(on_frame=watch) as client:
                    await asyncio.gather(*[talk(client, server.workspace) for _ in range(SESSIONS)])
                used = (cpu(process) - before) / len(watch.delays) * 1e6
                runs.append((*percentiles(watch.delays), percentiles(watch.durable)[1], used))
    return [
        Measure(f"delta model → client, {SESSIONS} × {RATE}/s, p50", min(run[0] for run in runs), "ms"),
        Measure(f"delta model → client, {SESSIONS} × {RATE}/s, p95", min(run[1] for run in runs), "ms", 10),
        Measure(f"delta → durable, {SESSIONS} × {RATE}/s, p95", min(run[2] for run in runs), "ms"),
        Measure("server CPU of one delta", min(run[3] for run in runs), "µs"),
    ]


def cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


async def start_and_memory() -> list[Measure]:
    starts: list[float] = []
    idle = each = 0.0
    with tempfile.TemporaryDirectory() as folder, ScriptedProcess(["hello"], Path(folder)) as model:
        for run in range(RUNS):
            with Served("--mode", "full", model_url=model.base_url) as server:
                process = psutil.Process(server.info["pid"])
                if run == 0:
                    server.stop()
                    server.start()  # with its database made, as on any day but the first
                    process = psutil.Process(server.info["pid"])
                    await asyncio.sleep(1)
                    idle = process.memory_info().rss / 2**20
                async with server.client() as client:
                    await talk(client, server.workspace)
                    starts.append(cpu(process))
                    if run == 0:
                        before = process.memory_info().rss
                        for _ in range(IDLE_SESSIONS):
                            await talk(client, server.workspace)
                        each = (process.memory_info().rss - before) / IDLE_SESSIONS / 2**20
    return [
        Measure("start → first answer", min(starts), "CPU-s", 1.5),
        Measure("idle server", idle, "MB", 150),
        Measure("one idle session", each, "MB", 2),
    ]


async def turn_overhead() -> list[Measure]:
    with tempfile.TemporaryDirectory() as folder:
        async with system({"text": "ok"}, Path(folder)) as (server, model), server.client() as client:
            session = await client.new_session(server.workspace)
            turns, bare = [], []
            for _ in range(30):
                started = time.perf_counter()
                await client.call("session/prompt", sessionId=session, prompt=GO)
                turns.append((time.perf_counter() - started) * 1000)
                started = time.perf_counter()
                await direct(model.base_url)
                bare.append((time.perf_counter() - started) * 1000)
    return [Measure("turn overhead, warm", min(turns[3:]) - min(bare), "ms", 100)]


async def attach_to_long() -> list[Measure]:
    with Served("--mode", "full", model_url="http://127.0.0.1:9/v1") as server:
        server.stop()
        session = await write_long_session(server)
        server.start()
        waits = []
        for _ in range(5):
            first: list[float] = []

            def note(message: dict[str, Any], first: list[float] = first) -> None:
                if message.get("method") in ("_etude/event", "session/update"):
                    first.append(time.perf_counter())

            async with server.client(on_frame=note) as client:
                started = time.perf_counter()
                await client.send("_etude/attach", sessionId=session, afterSeq=0)
                await client.until(lambda _, first=first: first)
                waits.append((first[0] - started) * 1000)
    return [Measure(f"attach to {EVENTS:,} events, first frame", min(waits), "ms", 100)]


async def write_long_session(server: Served) -> str:
    """A session of 100,000 events in the database of a stopped server."""
    async with await Store.open(f"sqlite:///{server.data / 'etude.db'}") as store:
        record = SessionCreated(
            workspace=str(server.workspace), user_id="local", model="m", mode="full", profile="full"
        )
        session = await store.create_session(record)
        log = await store.lease(session)
        for start in range(0, EVENTS, 1000):
            data = [
                {"messageId": "m", "offset": 40 * k, "text": "x" * 40} for k in range(start, start + 1000)
            ]
            await asyncio.gather(*[log.submit(Draft(type="text", data=item, turn=1)) for item in data])
        await log.release()
    return session


BENCHES: dict[str, Callable[[], Coroutine[Any, Any, list[Measure]]]] = {
    "one": one_session,
    "many": many_sessions,
    "start": start_and_memory,
    "turn": turn_overhead,
    "attach": attach_to_long,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--only", choices=sorted(BENCHES), help="one group of measures")
    arguments = parser.parse_args()
    missed = False
    for name, bench in BENCHES.items():
        if arguments.only not in (None, name):
            continue
        for measure in asyncio.run(bench()):
            missed |= not measure.kept
            if arguments.json:
                print(json.dumps({**asdict(measure), "kept": measure.kept}), flush=True)
            else:
                budget = "" if measure.budget is None else f"  (budget {measure.budget:g})"
                mark = "" if measure.kept else "  MISSED"
                print(f"{measure.name:48} {measure.value:10.2f} {measure.unit}{budget}{mark}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
