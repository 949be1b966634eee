"""A memory task at a small window: what is still known after a self-summary, after truncation, with no limit.

    python -m benchmarks.summary [--sessions N] [--window TOKENS] [--only MODE] [--keep]

A session reads files, each of which states one fact among filler; the calls are scripted, everything else is
the product: its tools, its context, its summaries. The embedded model writes the summaries and answers the
questions. An answer counts if it holds the fact's number. `--keep` writes `benchmarks/results/summary.json`.
"""

import argparse
import asyncio
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any, Literal

from ulid import ULID

from agent.events import Call, Event, Prompt, SessionCreated, Usage, draft
from agent.log import MemoryLog
from agent.loop import run_turn
from agent.models.client import Chunk, Completion, Delta, Price, Request
from agent.models.local import LocalModel
from agent.session import Session
from server.places import cache_dir
from tools.sandbox.policy import SandboxPolicy
from tools.workspace import Workspace

SEED = 20_260
FACTS, QUESTIONS = 5, 3
THINGS = (
    "harbour",
    "lantern",
    "walnut",
    "glacier",
    "violin",
    "saddle",
    "orchard",
    "compass",
    "thimble",
    "meadow",
)
FILLER = "The crew wrote down the weather, the tide and the names of the ships that passed.\n"
Mode = Literal["no limit", "summary", "truncation"]
MODES: tuple[Mode, ...] = ("no limit", "summary", "truncation")


class Guided:
    """Scripted reads first, then the embedded model. Where `truncate` is set it never gives a summary."""

    policy: str | None = None
    profile: Literal["full", "compact"] = "compact"
    price: Price | None = None

    def __init__(self, model: LocalModel, paths: list[str], window: int, truncate: bool) -> None:
        self.name, self.model, self.paths = model.name, model, list(paths)
        self.context_window, self.truncate = window, truncate
        self.written = 0
        """Tokens that the embedded model wrote."""

    async def sample(self, request: Request) -> AsyncGenerator[Chunk, None]:
        if request.purpose == "summary" and self.truncate:
            yield Completion(text="", thought="", calls=[], finish="stop", usage=Usage())
            return
        if request.purpose == "step" and self.paths:
            call = Call(id=str(ULID()), name="read", arguments=json.dumps({"path": self.paths.pop(0)}))
            yield Completion(text="", thought="", calls=[call], finish="tool_calls", usage=Usage())
            return
        if request.purpose == "step" and request.messages[-1]["role"] == "tool":
            yield Completion(text="I read them.", thought="", calls=[], finish="stop", usage=Usage())
            return
        async with aclosing(self.model.sample(request)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Delta):
                    continue
                if isinstance(chunk, Completion):
                    self.written += chunk.usage.output or 0
                yield chunk

    async def close(self) -> None:
        """The embedded model is shared."""


async def one(model: LocalModel, mode: Mode, seed: int, window: int) -> dict[str, Any]:
    """One session: reads, then questions. Returns counts."""
    dice = random.Random(seed)
    facts = {thing: str(dice.randrange(100, 1000)) for thing in dice.sample(THINGS, FACTS)}
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for thing, number in facts.items():
            (root / f"{thing}.txt").write_text(f"{FILLER * 4}The {thing} number is {number}.\n{FILLER * 4}")
        guided = Guided(model, [f"{thing}.txt" for thing in facts], window, mode == "truncation")
        session = await _session(root, guided, mode)
        right, asked = 0, dice.sample(list(facts), QUESTIONS)
        try:
            await _turn(session, "Read all the text files here and remember their numbers.")
            for thing in asked:
                events = await _turn(session, f"What is the {thing} number? Say the number from {thing}.txt.")
                answer = " ".join(e.data["text"] for e in events if e.type == "generation")
                right += facts[thing] in answer
            log = session.log.events  # pyright: ignore[reportAttributeAccessIssue] - a log in memory
        finally:
            await session.close()
    summaries = [event.data for event in log if event.type == "summary"]
    return {
        "right": right,
        "asked": len(asked),
        "summaries": len(summaries),
        "fallbacks": sum(data.get("fallback", False) for data in summaries),
        "refusals": [refused["reason"] for data in summaries for refused in data.get("refused", [])],
        "overlong": sum(e.type == "turn.ended" and e.data["reason"] == "overlong" for e in log),
        "written": guided.written,
        "seconds": round(time.monotonic() - begun, 1),
    }


async def _session(root: Path, guided: Guided, mode: Mode) -> Session:
    log = MemoryLog(str(ULID()))
    created = SessionCreated(
        workspace=str(root), user_id="local", model=guided.name, mode="plan", profile="compact"
    )
    await log.submit(draft("session.created", created))
    most = 0 if mode == "no limit" else 20
    workspace = Workspace(root, SandboxPolicy())
    return Session(log, log.events, workspace, guided, max_output=24, max_summaries=most)


async def _turn(session: Session, text: str) -> list[Event]:
    prompt = Prompt(message_id=str(ULID()), text=text)
    return [message async for message in run_turn(session, prompt) if isinstance(message, Event)]


async def measured(mode: Mode, sessions: int, window: int) -> dict[str, Any]:
    """One mode on the same sessions as the others."""
    model = LocalModel(None, cache_dir())
    try:
        limit = model.context_window if mode == "no limit" else window
        runs = [await one(model, mode, SEED + index, limit) for index in range(sessions)]
    finally:
        await model.close()
    sums = {key: sum(run[key] for run in runs) for key in runs[0] if key != "refusals"}
    sums["seconds"] = round(sums["seconds"], 1)
    return {"window": limit, "sessions": sessions, **sums}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--window", type=int, default=1_400)
    parser.add_argument("--only", choices=MODES)
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    for mode in [arguments.only] if arguments.only else MODES:
        found = asyncio.run(measured(mode, arguments.sessions, arguments.window))
        sys.stdout.write(f"{mode:>10}: {found['right']} of {found['asked']} right, {json.dumps(found)}\n")
        sys.stdout.flush()
        if arguments.keep:
            _keep(mode, found)


def _keep(mode: Mode, found: dict[str, Any]) -> None:
    """Put the figures of a mode into the file of results, beside those of the others."""
    command = ["git", "rev-parse", "HEAD"]
    folder = Path(__file__).parent
    commit = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()
    path = folder / "results" / "summary.json"
    result: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"modes": {}}
    result |= {
        "command": "python -m benchmarks.summary --keep",
        "seed": SEED,
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }
    result["modes"][mode] = {"commit": commit, **found}
    path.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
