"""What the server costs between a model and a client: the way of a word to the screen, and to the disk.

    python -m benchmarks.streaming [--quick] [--json] [--only GROUP]

Model, server and client are three processes; a word carries the time at which the model sent it. A stream
is cut into windows, and of each percentile the window where it was least counts: a busy machine makes
words later, never earlier. `direct` is the same stream without a server between: what the machine adds.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import psutil

from benchmarks.measure import Budget, Group, Measure, main
from tests.support.acp import AcpClient, Frame
from tests.support.scripted_model import ScriptedProcess
from tests.support.served import Served

ONE_P50 = Budget("delta model → client, one session, p50", "ms", 0.6, wall=True)
ONE_P95 = Budget("delta model → client, one session, p95", "ms", 1.5, wall=True)
ONE_DURABLE = Budget("delta → durable, one session, p95", "ms", 60, wall=True)
MANY_P95 = Budget("delta model → client, 64 sessions × 20/s, p95", "ms", 10, wall=True)
MANY_DURABLE = Budget("delta → durable, 64 sessions × 20/s, p95", "ms", 60, wall=True)

GO = [{"type": "text", "text": "go"}]
SESSIONS, RATE = 64, 20
ALONE_RATE = 100
"""Words a second of the single session, as a fast model sends them."""
ALONE_WINDOW_S, WINDOW_S = 1.0, 1.0

Sample = tuple[float, float]
"""When something came (seconds), and how long after the model had sent it (milliseconds)."""


def arrivals(frames: Sequence[Frame]) -> tuple[list[Sample], list[Sample]]:
    """When each word was shown, and when it was said to be stored, of what a client received."""
    live, durable = list[Sample](), list[Sample]()
    unstored: dict[str, list[tuple[int, float]]] = {}

    def stored(message_id: str, end: int, now: float) -> None:
        waiting = unstored.get(message_id, [])
        durable.extend((now, (now - sent) * 1000) for offset, sent in waiting if offset < end)
        unstored[message_id] = [item for item in waiting if item[0] >= end]

    for frame in frames:
        params = frame.message.get("params") or {}
        if frame.message.get("method") == "_etude/stored":
            stored(params["messageId"], params["end"], frame.at)
            continue
        update = params.get("update") or {}
        if update.get("sessionUpdate") != "agent_message_chunk":
            continue
        mark, text = params["_meta"]["etude"], update["content"]["text"]
        for sent in stamps(text):
            if mark.get("live"):
                live.append((frame.at, (frame.at - sent) * 1000))
            unstored.setdefault(mark["messageId"], []).append((mark["offset"], sent))
        if "seq" in mark:
            stored(mark["messageId"], mark["offset"] + len(text), frame.at)
    return live, durable


def stamps(text: str) -> list[float]:
    """The times at which the model sent the words of a piece of text."""
    return [float(word.rpartition("@")[2]) for word in text.split() if "@" in word]


def stream(seconds: float, rate: float) -> dict[str, Any]:
    """A turn of the scripted model: stamped words at an even pace."""
    return {"text": " ".join(["word"] * int(seconds * rate)), "stamp": True, "delay_ms": 1000 / rate}


def windows(samples: Sequence[Sample], begin: float, end: float, length: float) -> list[list[float]]:
    """The delays of the samples that came in each whole window between two times."""
    count = int((end - begin) / length)
    cut: list[list[float]] = [[] for _ in range(count)]
    for came, delay in samples:
        index = int((came - begin) / length)
        if 0 <= index < count:
            cut[index].append(delay)
    return [delays for delays in cut if len(delays) >= 20]


def percentile(delays: Sequence[float], percent: int) -> float:
    return statistics.quantiles(delays, n=100, method="inclusive")[percent - 1]


def least(cut: Sequence[Sequence[float]], percent: int) -> float:
    """The percentile in the window where it is least."""
    return min(percentile(delays, percent) for delays in cut)


@asynccontextmanager
async def system(turns: list[Any]) -> AsyncIterator[tuple[Served, ScriptedProcess]]:
    """A model process and a server process."""
    with (
        tempfile.TemporaryDirectory() as folder,
        ScriptedProcess(turns, Path(folder)) as model,
        Served("--mode", "full", model_url=model.base_url) as server,
    ):
        yield server, model


async def talk(client: AcpClient, session: str) -> None:
    await client.call("session/prompt", sessionId=session, prompt=GO, timeout=300)


async def direct(http: httpx.AsyncClient, url: str) -> list[Sample]:
    """The words read straight from the model: what the machine itself adds."""
    body = {"model": "scripted", "stream": True, "messages": [], "tools": [{}]}
    samples: list[Sample] = []
    async with http.stream("POST", f"{url}/chat/completions", json=body) as answer:
        async for line in answer.aiter_lines():
            now = time.time()
            if line.startswith("data: {"):
                choices = orjson.loads(line[6:]).get("choices") or [{}]
                content = choices[0].get("delta", {}).get("content") or ""
                samples += [(now, (now - sent) * 1000) for sent in stamps(content)]
    return samples


async def one_session(quick: bool) -> list[Measure]:
    """One session that streams, then the same words without a server."""
    seconds = 3 if quick else 10
    async with system(["ready", stream(seconds, ALONE_RATE)]) as (server, model):
        async with server.client() as client:
            session = await client.new_session(server.workspace)
            await talk(client, session)
            await talk(client, session)
            await asyncio.sleep(0.1)
        async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
            bare = await direct(http, model.base_url)
    delays, durable, straight = (
        windows(found, found[0][0], found[-1][0], ALONE_WINDOW_S)
        for found in (*arrivals(client.frames), bare)
    )
    without = f"direct {least(straight, 50):.2f}", f"direct {least(straight, 95):.2f}"
    return [
        ONE_P50.of(least(delays, 50), without[0]),
        ONE_P95.of(least(delays, 95), without[1]),
        ONE_DURABLE.of(least(durable, 95), f"p50 {least(durable, 50):.0f}"),
    ]


async def many_sessions(quick: bool) -> list[Measure]:
    """64 sessions that all stream. Only what came while all of them did is judged."""
    seconds = 5 if quick else 12
    turns = [*["ready"] * SESSIONS, stream(seconds, RATE)]
    async with system(turns) as (server, _), server.client() as client:
        sessions = [await client.new_session(server.workspace) for _ in range(SESSIONS)]
        await asyncio.gather(*[talk(client, session) for session in sessions])
        process = psutil.Process(server.info["pid"])
        started, before = time.time(), processor_s(process)
        running: list[asyncio.Task[None]] = []
        for session in sessions:  # out of step with one another, as sessions are
            running.append(asyncio.create_task(talk(client, session)))
            await asyncio.sleep(0.0137)
        everyone = time.time() + 0.1
        await asyncio.gather(*running)
        used = (processor_s(process) - before) * 1e6
    shown, stored = arrivals(client.frames)
    delays, durable = (windows(found, everyone, started + seconds, WINDOW_S) for found in (shown, stored))
    return [
        MANY_P95.of(least(delays, 95), f"p50 {least(delays, 50):.1f}"),
        MANY_DURABLE.of(least(durable, 95), f"p50 {least(durable, 50):.0f}"),
        Measure(
            "processor time of one delta in the server",
            used / len(shown),
            "µs",
            detail="shown, stored, said stored",
        ),
    ]


def processor_s(process: psutil.Process) -> float:
    """Seconds of processor time that a process has used."""
    times = process.cpu_times()
    return times.user + times.system


GROUPS = {
    "one": Group(one_session, (ONE_P50, ONE_P95, ONE_DURABLE)),
    "many": Group(many_sessions, (MANY_P95, MANY_DURABLE)),
}

if __name__ == "__main__":
    sys.exit(main(GROUPS, __doc__))
