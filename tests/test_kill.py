"""SIGKILL of the server at many moments: inside streamed text, inside a tool, inside a commit, in between.

After each: the session opens again, nothing that was acknowledged is lost, calls and results pair, and the
resumed turn goes on. `ETUDE_TEST_KILLS` is the number of moments (a fifth each in between and in commits);
the seed is printed and can be given as `ETUDE_TEST_SEED`.
"""

import asyncio
import os
import random
import subprocess
import sys
import time
from collections import Counter
from typing import Any

import pytest

from tests.support.acp import AcpClient
from tests.support.results import keep
from tests.support.scripted_model import ScriptedModel
from tests.support.served import Served

MOMENTS = int(os.environ.get("ETUDE_TEST_KILLS", "25"))
SEED = int(os.environ.get("ETUDE_TEST_SEED", str(random.SystemRandom().randrange(10**9))))

WORKING = "for i in 1 2 3 4 5 6 7 8 9 10; do echo line $i; sleep 0.1; done"

SNIPER = """
import os, signal, sys
pid, path, hits = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
def state():
    try:
        found = os.stat(path)
        return found.st_size, found.st_mtime_ns
    except FileNotFoundError:
        return None
last = state()
print("ready", flush=True)
while hits:
    now = state()
    if now != last:
        last, hits = now, hits - 1
os.kill(pid, signal.SIGKILL)
"""
"""Kills when the write-ahead log has been written to so many times: in the midst of a transaction."""


def answer(body: dict[str, Any]) -> dict[str, Any]:
    """What the model does depends on the last user message and on the steps since."""
    messages = body["messages"]
    last = max(at for at, message in enumerate(messages) if message["role"] == "user")
    asked, steps = messages[last]["content"], len(messages) - last - 1
    if asked.startswith("go on"):
        return {"text": "resumed"}
    if asked.startswith("text"):
        return {"text": " ".join(f"word{i}" for i in range(400)), "delay_ms": 4}
    if asked.startswith("tool"):
        if steps:
            return {"text": "done"}
        calls = [{"name": "read", "arguments": {"path": "hello.py"}}]
        return {"text": "running", "calls": [*calls, {"name": "shell", "arguments": {"command": WORKING}}]}
    if steps >= 80:
        return {"text": "done"}
    return {
        "text": f"step {steps}",
        "calls": [{"name": "read", "arguments": {"path": "hello.py", "start": steps}}],
    }


def paired(messages: list[dict[str, Any]]) -> bool:
    called = [call["id"] for message in messages for call in message.get("tool_calls", [])]
    answered = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    return sorted(called) == sorted(answered)


async def strike(server: Served, client: AcpClient, session: str, kind: str, dice: random.Random) -> None:
    """Send a prompt of this kind and kill the server at a moment of its own."""
    if kind == "commit":
        assert server.process is not None
        wal = server.data / "etude.db-wal"
        sniper = subprocess.Popen(
            [sys.executable, "-c", SNIPER, str(server.process.pid), str(wal), str(dice.randint(1, 60))],
            stdout=subprocess.PIPE,
        )
        assert sniper.stdout is not None
        await asyncio.to_thread(sniper.stdout.readline)
        await client.send("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "commit"}])
        await asyncio.to_thread(sniper.wait, 60)
        sniper.stdout.close()
        await asyncio.to_thread(server.process.wait, 10)
    else:
        text = "step" if kind == "between" else kind
        await client.send("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])
        if kind == "text":
            count = dice.randint(1, 200)
            await client.until(lambda c: len(c.updates("agent_message_chunk")) >= count)
        elif kind == "tool":
            await client.until(lambda c: c.updates("tool_call_update") or len(c.updates("tool_call")) > 1)
            await asyncio.sleep(dice.uniform(0, 0.9))
        else:
            count = dice.randint(1, 30)
            await client.until(lambda c: len(c.of("session/update")) >= count)
            await asyncio.sleep(dice.uniform(0, 0.02))
    server.kill()


def acknowledged(client: AcpClient) -> tuple[set[int], dict[str, int]]:
    """What the client was told is stored: sequence numbers, and per message how many characters."""
    seqs: set[int] = set()
    ends: dict[str, int] = {}
    for frame in client.frames:
        params = frame.message.get("params", {})
        meta = params.get("_meta", {}).get("etude", {})
        if "seq" in meta:
            seqs.add(meta["seq"])
        if frame.message.get("method") in ("_etude/event", "_etude/accepted"):
            seqs.add(params["seq"])
        if frame.message.get("method") == "_etude/stored":
            seqs.add(params["seq"])
            ends[params["messageId"]] = max(ends.get(params["messageId"], 0), params["end"])
    return seqs, ends


async def check(
    server: Served, session: str, seqs: set[int], ends: dict[str, int], dice: random.Random
) -> str:
    """The session after a restart; returns how its broken turn ended."""
    async with server.client() as first, server.client() as second:
        listed = await first.call("session/list")
        assert session in [item["sessionId"] for item in listed["sessions"]]
        await first.call("session/resume", sessionId=session, cwd=str(server.workspace), mcpServers=[])
        events = server.events(session)
        stored = [event["seq"] for event in events]
        assert stored == list(range(1, len(stored) + 1))
        assert seqs <= set(stored)
        for message, end in ends.items():
            pieces = [
                event["data"]
                for event in events
                if event["type"] in ("text", "thought", "tool.output")
                and message in (event["data"].get("messageId"), event["data"].get("call_id"))
            ]
            assert max((piece["offset"] + len(piece["text"]) for piece in pieces), default=0) >= end
        after = dice.randint(0, len(stored))
        await second.call("_etude/attach", sessionId=session, afterSeq=after)
        answer = await first.prompt(session, "go on")
        assert answer["stopReason"] == "end_turn"
        events = server.events(session)
        await second.until(lambda client: events[-1]["seq"] in acknowledged(client)[0])
        told, _ = acknowledged(second)
        assert told == set(range(after + 1, events[-1]["seq"] + 1))
    reasons = [event["data"]["reason"] for event in events if event["type"] == "turn.ended"]
    assert reasons[-1] == "end_turn"
    calls = [call["id"] for e in events if e["type"] == "generation" for call in e["data"].get("calls", [])]
    results = [e["data"]["call_id"] for e in events if e["type"] == "tool.result"]
    assert sorted(calls) == sorted(results)
    return reasons[-2] if len(reasons) > 1 else "lost"


@pytest.mark.kill
@pytest.mark.timeout(1800)
@pytest.mark.case("agent-4")
@pytest.mark.case("agent-5")
@pytest.mark.case("agent-6")
async def test_a_killed_server_loses_nothing_it_acknowledged() -> None:
    dice = random.Random(SEED)
    each = max(1, MOMENTS // 5)
    kinds = ["text"] * each + ["tool"] * each + ["commit"] * each
    kinds += ["between"] * (MOMENTS - len(kinds))
    dice.shuffle(kinds)
    print(f"seed {SEED}, {len(kinds)} moments: {dict(Counter(kinds))}")
    ended: Counter[tuple[str, str]] = Counter()
    started = time.monotonic()
    with ScriptedModel(answer) as model, Served("--mode", "full", model_url=model.base_url) as server:
        for kind in kinds:
            async with server.client() as client:
                session = await client.new_session(server.workspace)
                await strike(server, client, session, kind, dice)
            seqs, ends = acknowledged(client)
            server.start()
            ended[kind, await check(server, session, seqs, ends, dice)] += 1
            assert paired(model.requests[-1]["messages"])
    print(f"how the broken turns ended: {dict(ended)} in {time.monotonic() - started:.0f} s")
    how = {f"{kind}, {end}": count for (kind, end), count in sorted(ended.items())}
    keep("kill", SEED, moments=len(kinds), ends_of_broken_turns=how)
    assert sum(ended.values()) == len(kinds)
    assert sum(count for (kind, how), count in ended.items() if how == "interrupted") >= len(kinds) * 0.6
