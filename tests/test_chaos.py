"""Many steps of a model that does everything wrong: the log pairs, explains the workspace, and ends.

`ETUDE_TEST_CHAOS_STEPS` is their number; `make test-long` runs a thousand.
"""

import os
from collections import Counter
from pathlib import Path
from statistics import median

import pytest

from agent import ask
from agent.events import Event, SessionCreated
from agent.models.catalog import open_model
from agent.models.settings import ModelSettings
from agent.session import Session
from server.store import Store
from tests.support.chaos_model import ChaosModel
from tests.support.held import held
from tests.support.results import keep
from tools.sandbox.policy import SandboxPolicy
from tools.snapshots import SnapshotStore
from tools.workspace import Workspace

STEPS = int(os.environ.get("ETUDE_TEST_CHAOS_STEPS", "400"))
SESSIONS = 20
APPENDS = "printf 'chaos\\n' >> chaos.txt"
FILES = {
    "a.py": "one = 1\ntwo = 2\n",
    "b.py": "def f():\n    return 1\n",
    "sub/c.py": "c = 3\n",
    "ü.py": "x = 1\n",
}
LARGE_BYTES = 16 << 20
SMALL_OBJECTS = 100_000
"""What may be held more at the end than at the start: a hundredth of what passed through."""
HONEST = {"end_turn", "max_steps", "malformed", "model_error", "overlong"}


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1])
async def test_chaos(tmp_path: Path, seed: int) -> None:
    reasons: Counter[str] = Counter()
    growth: list[tuple[int, int]] = []
    steps = 0
    store, kept = (
        await Store.open(f"sqlite:///{tmp_path / 'chaos.db'}"),
        SnapshotStore(tmp_path / "snapshots"),
    )
    try:
        with ChaosModel(seed, transport=True, stop=0.03) as model:
            for number in range(SESSIONS):
                root = tmp_path / f"w{number}"
                for name, text in FILES.items():
                    (root / name).parent.mkdir(parents=True, exist_ok=True)
                    (root / name).write_text(text)
                events = await _session(store, kept, model, root, STEPS // SESSIONS)
                steps += sum(event.type == "generation" for event in events)
                _assert_pairs(events)
                _assert_explained(events, root, await _contents(kept, events))
                reasons.update(e.data["reason"] for e in events if e.type == "turn.ended")
                model.forget()  # what the endpoint keeps for tests is not the agent's memory
                growth.append(held())
            assert model.errors == []
            mib = [(large >> 20, small) for large, small in growth]
            print(f"seed {seed}: {steps} steps, ends {dict(reasons)}, kinds {model.kinds}, held {mib}")
    finally:
        await store.close()
    large, small = zip(*growth, strict=True)
    keep(
        "chaos",
        seed,
        steps=steps,
        ends=dict(reasons),
        kinds=model.kinds,
        large_bytes=large,
        small_objects=small,
    )
    assert set(reasons) <= HONEST
    assert steps >= STEPS * 0.8
    quarter = len(growth) // 4
    assert median(large[-quarter:]) - median(large[:quarter]) < LARGE_BYTES
    assert median(small[-quarter:]) - median(small[:quarter]) < SMALL_OBJECTS


async def _session(
    store: Store, kept: SnapshotStore, model: ChaosModel, root: Path, steps: int
) -> list[Event]:
    created = SessionCreated(workspace=str(root), user_id="local", model="chaos", mode="full", profile="full")
    id = await store.create_session(created)
    log = await store.lease(id)
    settings = ModelSettings(provider="openai", model="scripted", base_url=model.base_url)
    client = open_model("chaos", models={"chaos": settings}, cache_dir=root)
    workspace = Workspace(root, SandboxPolicy(), snapshots=kept)
    session = Session(log, await store.all_events(id), workspace, client)
    done = 0
    try:
        while done < steps:
            session.max_steps = steps - done
            made = 0
            async for item in ask(session, f"session {id}, {done} steps done"):
                made += isinstance(item, Event) and item.type == "generation"
            done += max(made, 1)
    finally:
        await session.close()
        await client.close()
        await log.release()
    return await store.all_events(id)


async def _contents(kept: SnapshotStore, events: list[Event]) -> dict[str, bytes]:
    names = {
        event.data["after"]["hash"] for event in events if event.type == "edit" and event.data.get("after")
    }
    return {name: await kept.read(name) for name in names}


def _assert_pairs(events: list[Event]) -> None:
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    # A request to summarise is answered with text: what the model calls there is not run.
    steps = [e.data for e in events if e.type == "generation" and e.data.get("purpose", "step") == "step"]
    called = Counter(call["id"] for step in steps for call in step.get("calls", []))
    announced = Counter(e.data["call_id"] for e in events if e.type == "tool.call")
    answered = Counter(e.data["call_id"] for e in events if e.type == "tool.result")
    assert called == announced == answered
    assert set(called.values()) <= {1}
    assert [e.data for e in events if e.type == "tool.result" and e.data.get("error") == "unknown"] == []


def _assert_explained(events: list[Event], root: Path, contents: dict[str, bytes]) -> None:
    """Applying the log's edits, and the one command that writes, to the start gives the workspace."""
    files = {name: text.encode() for name, text in FILES.items()}
    commands = {
        event.data["call_id"]: (event.data.get("arguments") or {}).get("command")
        for event in events
        if event.type == "tool.call"
    }
    for event in events:
        if event.type == "edit":
            if (after := event.data.get("after")) is None:
                files.pop(event.data["path"], None)
            else:
                files[event.data["path"]] = contents[after["hash"]]
        elif event.type == "tool.result" and commands.get(event.data["call_id"]) == APPENDS:
            appended = files.get("chaos.txt", b"") + b"chaos\n"
            files |= {"chaos.txt": appended} if "exit_code" in event.data.get("data", {}) else {}
    found = {
        path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }
    assert found == files
