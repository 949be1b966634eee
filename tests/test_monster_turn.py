"""A whole turn on a repository of everything that goes wrong, in the real server, and its undo.

What the server does beside the tools is held to its budgets too: the facts and states of the workspace, the
memory it takes, and how long its event loop is kept from anything else.
"""

import asyncio
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
import zstandard

from agent.checkpoints import PROMPT_LIMITS, STEP_LIMITS
from agent.workspace_facts import TIMEOUT_S
from tests.support.inprocess import starting
from tests.support.monster import BROKEN_NAME, FILES, NEEDLE, SECRET, Monster, monster
from tests.support.results import keep
from tests.support.trees import tree_of
from tests.support.turns import call

GROWTH_MB = 300
BLOCKED_S = 1.0
SLACK_S = 10.0
CALL_S = 60.0
"""The most that any call of the turn may take: what diagnostics gives a checker."""
FACTS_S = 2 * TIMEOUT_S + 2 * SLACK_S
UNDO_S = 60.0
DISK_S = 20.0
"""What a busy disk takes, after a look has ended in time, to keep what it found."""

TICKING = """
import select, sys, time
worst, last = 0.0, time.monotonic()
while not select.select([sys.stdin], [], [], 0.02)[0]:
    now = time.monotonic()
    worst, last = max(worst, now - last), now
print(worst)
"""
"""How long a process that does nothing is kept waiting: by so much the machine itself is busy."""


@contextmanager
def starved() -> Iterator[list[float]]:
    """Fills in, at the end, for how long the machine had no time for anybody."""
    found: list[float] = []
    with subprocess.Popen(
        [sys.executable, "-c", TICKING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield found
        finally:
            found.append(float(process.communicate("\n")[0]))


@asynccontextmanager
async def ticking() -> AsyncIterator[list[float]]:
    """`[seconds]`: the longest that the event loop did not come round."""
    worst = [0.0]

    async def tick() -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(0.02)
            now = time.monotonic()
            worst[0], last = max(worst[0], now - last - 0.02), now

    task = asyncio.create_task(tick())
    try:
        yield worst
    finally:
        task.cancel()


def memory_mb(field: str) -> float:
    """`VmRSS` (now) or `VmHWM` (the most since it was last reset) of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def script(beast: Monster) -> list[Any]:
    """Every tool once or more on the odd kinds; the model says nothing that depends on the answers."""
    patch = (
        "*** Begin Patch\n*** Update File: sub/library.py\n@@\n-    return 1\n+    return 2\n"
        "*** Update File: nested/library.py\n@@\n-    return 1\n+    return 2\n"
        "*** Add File: huge/added.py\n+added = 1\n*** End Patch\n"
    )
    read = ["main.py", "sub/library.py", "nested/library.py", beast.bottom, f"odd/{BROKEN_NAME}", ".env"]
    odd = [
        "odd/fifo",
        "odd/socket",
        "odd/itself",
        "odd/dangling",
        "odd/private",
        "sparse.bin",
        "bundle.min.js",
    ]
    steps = [
        [call("read", path=path) for path in [*read, *odd, "odd/caf\ufffd.py", "odd"]],
        [call("list"), *(call("list", path=path) for path in ("huge", "odd", "deep", "abyss"))],
        [call("glob", pattern="**/*.py"), call("glob", pattern="odd/*"), call("grep", pattern=NEEDLE)],
        [call("grep", pattern=r"return\s+total$", path="huge"), call("grep", pattern="ghp_", path=".env")],
        [call("search", query="what a library has borrowed"), call("symbols", query="work_7")],
        [
            call("edit", path="main.py", edits=[{"old": "def main", "new": "def began"}]),
            call("edit", path=beast.bottom, edits=[{"old": "return 1", "new": "return 2"}]),
            call("write", path="odd/written.py", content="written = 1\n"),
            call("write", path="odd/fifo", content="no"),
            call("apply_patch", patch=patch),
            call("delete", path="odd/itself"),
            call("delete", path="huge/"),
            call("move", source=f"odd/{BROKEN_NAME}", target="odd/one line.py"),
            call("move", source="nested", target="elsewhere"),
        ],
        [
            call("shell", command="git status --short 2>/dev/null | head -40; git -C sub status --short"),
            call("shell", command="git -C nested status --short; ls huge | head -3; ls odd; cat .env"),
            call("shell", command="echo made > huge/made.txt; rm many/part0000/file000.py"),
            call("shell", command="cat odd/fifo", timeout_s=1),
        ],
        [call("diagnostics", paths=["odd", "sub", "huge"]), call("diagnostics")],
    ]
    return [*({"calls": calls} for calls in steps), "all seen"]


def states(beast: Monster) -> dict[bytes, Any]:
    """All that the turn changes, and whatever lies beside it."""
    found: dict[bytes, Any] = {}
    for name in ("odd", "sub", "nested", "deep", "many/part0000"):
        below = tree_of(beast.root / name)
        found |= {os.fsencode(name) + b"/" + path: state for path, state in below.items()}
    return found | {
        b"main.py": (beast.root / "main.py").read_bytes(),
        b"huge": len(os.listdir(beast.root / "huge")),
    }


@pytest.mark.timeout(600)
async def test_a_turn_on_a_monster_stays_in_its_budgets_and_is_undone(tmp_path: Path) -> None:
    beast = monster(tmp_path, FILES)
    guarded, before = beast.guarded(), states(beast)
    figures: dict[str, Any] = {"files": FILES}
    async with starting(tmp_path) as start:
        turns = script(beast)
        server, model = await start(turns)
        Path("/proc/self/clear_refs").write_text("5")
        at_first = memory_mb("VmRSS")
        with starved() as machine:
            async with ticking() as blocked, server.client() as client:
                session = await client.new_session(beast.root)
                began = time.monotonic()
                answer = await client.prompt(session, "look at all of it", timeout=400)
                figures["turn_s"] = round(time.monotonic() - began, 1)
                assert answer["stopReason"] == "end_turn"
                began = time.monotonic()
                undo = {"sessionId": session, "target": {"turn": 1}, "kind": "undo"}
                done = await client.call("_etude/feedback", timeout=200, **undo)
                figures["undo_s"] = round(time.monotonic() - began, 1)
                frames = orjson.dumps([frame.message for frame in client.frames])
        figures["loop_blocked_s"] = round(blocked[0], 2)
        figures["machine_busy_s"] = round(machine[0], 2)
        figures["memory_growth_mb"] = round(memory_mb("VmHWM") - at_first)
        events = await server.store.all_events(session)
        assert model.errors == []
        asked = orjson.dumps(model.requests)
    figures |= timings(events)
    print(figures)
    keep("monster_turn", 0, **figures)

    calls = [one for turn in turns if isinstance(turn, dict) for one in turn["calls"]]
    results = [event.data for event in events if event.type == "tool.result"]
    assert len(results) == len(calls)
    assert figures["slowest_call_s"] <= CALL_S + SLACK_S
    assert figures["facts_s"] <= FACTS_S
    assert figures["prompt_state_s"] <= PROMPT_LIMITS.seconds + DISK_S
    assert figures["step_state_s"] <= STEP_LIMITS.seconds + DISK_S
    assert figures["undo_s"] <= UNDO_S
    assert figures["loop_blocked_s"] <= BLOCKED_S + machine[0]
    assert figures["memory_growth_mb"] <= GROWTH_MB

    facts = next(event.data for event in events if event.type == "workspace")
    assert facts["git"] is None or "error" in facts["git"] or facts["git"]["changed_count"] >= 4
    for event in events:
        if event.type == "checkpoint":
            said = {one["reason"] for one in event.data.get("left_out", [])}
            assert "too_large" in said and "git" in said
            assert ("budget" in said) == (event.data.get("partial") is not None)

    assert done["restored"] is not None
    after = states(beast)
    assert {path for path in before | after if before.get(path) != after.get(path)} <= set(not_undone(events))
    secret = SECRET.encode()
    assert secret not in asked and b"[secret:github-token:" in asked
    assert secret not in frames and b"[secret:github-token:" in frames
    kept = b"".join(everything_in(tmp_path / "etude.db"))
    assert secret not in kept and b"[secret:github-token:" in kept
    assert beast.guarded() == guarded


def timings(events: list[Any]) -> dict[str, Any]:
    """How long calls, facts and states of the workspace took, in seconds."""
    begun = {event.data.get("call_id"): event.ts for event in events if event.type == "tool.call"}
    calls = [
        ((event.ts - begun[event.data["call_id"]]) / 1e6, event.data["name"])
        for event in events
        if event.type == "tool.result" and event.data["call_id"] in begun
    ]
    first = next(event.ts for event in events if event.type == "prompt")
    facts = next(event.ts for event in events if event.type == "workspace")
    taken = [(e.data["reason"], e.data["took_ms"] / 1000) for e in events if e.type == "checkpoint"]
    return {
        "slowest_call_s": round(max(took for took, _ in calls), 2),
        "slowest_call": max(calls)[1],
        "facts_s": round((facts - first) / 1e6, 2),
        "prompt_state_s": round(max(took for reason, took in taken if reason == "prompt"), 2),
        "step_state_s": round(max(took for reason, took in taken if reason != "prompt"), 2),
        "partial_states": sum(e.data.get("partial") is not None for e in events if e.type == "checkpoint"),
        "states": len(taken),
    }


def not_undone(events: list[Any]) -> Iterator[bytes]:
    """What commands did, and links that were deleted, where the states around them were partial: nobody can
    know it, and it is said that they are."""
    if any(event.data.get("partial") for event in events if event.type == "checkpoint"):
        yield from (b"huge", b"many/part0000/file000.py", b"odd/itself")


def everything_in(database: Path) -> Iterator[bytes]:
    """Every value of every table, what is compressed expanded."""
    with sqlite3.connect(database) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for row in connection.execute(f'SELECT * FROM "{table}"'):
                for value in row:
                    data = value if isinstance(value, bytes) else str(value).encode()
                    yield zstandard.decompress(data) if data.startswith(zstandard.FRAME_HEADER) else data
    connection.close()
