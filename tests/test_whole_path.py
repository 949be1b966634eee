"""One whole path on a real package: search, read, three edits, its own test suite, an honest end.

The published source of `humanize` has a defect: `natural_list([])` raises. A scripted model repairs it the
way a model would; everything that happens must be in the log, and the log must be enough to rebuild it.
"""

import os
import subprocess
import sys
import urllib.error
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest

from agent.context import items
from agent.events import Event
from agent.state import fold
from tests.support.published import published_source
from tests.support.scripted_model import ScriptedModel
from tests.support.scripted_turns import token_ids
from tests.support.served import Served
from tools.snapshots import SnapshotStore
from tools.workspace import content_hash

PYTEST = "PYTHONPATH=src python -m pytest -q --color=no -p no:cacheprovider -p no:asyncio"

TOOLS = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
"""The virtual environment of these tests comes first, as a developer's would."""

SOURCE = """    if len(items) == 1:
        return str(items[0])"""
REPAIRED = """    if not items:
        return ""
    if len(items) == 1:
        return str(items[0])"""

FILES = ("src/humanize/lists.py", "tests/test_lists.py", "src/humanize/filesize.py")


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


SCRIPT: list[dict[str, Any]] = [
    {"text": "Let me look.", "calls": [call("grep", pattern="def natural_list", path="src")]},
    {"calls": [call("read", path=path) for path in FILES]},
    {
        "text": "An empty list has no last item.",
        "calls": [
            call("edit", path=FILES[0], edits=[{"old": SOURCE, "new": REPAIRED}]),
            call(
                "edit",
                path=FILES[1],
                edits=[
                    {"old": '        ([[""]], ""),\n', "new": '        ([[""]], ""),\n        ([[]], ""),\n'}
                ],
            ),
            call(
                "edit",
                path=FILES[2],
                edits=[{"old": "like a human-readable filesize", "new": "as a human-readable file size"}],
            ),
        ],
    },
    {"calls": [call("shell", command=PYTEST)]},
    {"text": "An empty list is now an empty string; the suite passes."},
]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = published_source("humanize", "4.12.3", tmp_path_factory.mktemp("published"))
    author = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*author, "commit", "-qm", "published"]):
        subprocess.run(["git", *command], cwd=root, check=True, capture_output=True)
    return root


async def test_a_real_package_is_repaired_and_the_log_explains_everything(workspace: Path) -> None:
    before = {path: (workspace / path).read_bytes() for path in FILES}
    with (
        ScriptedModel(SCRIPT) as model,
        Served("--mode", "full", model_url=model.base_url, workspace=workspace, env=TOOLS) as server,
    ):
        async with server.client() as client:
            session = await client.new_session(workspace)
            answer = await client.prompt(session, "natural_list([]) crashes. Fix it.", message_id="m-1")
            assert answer["stopReason"] == "end_turn"
        events = [Event.model_validate(event) for event in server.events(session)]
        requests = [request for request in model.requests if request.get("tools")]
        stored = [
            server.get(f"/api/generations/{event.data['id']}")
            for event in events
            if event.type == "generation"
        ]
        kept = SnapshotStore(server.data / "snapshots")
        contents = {
            reference["hash"]: await kept.read(reference["hash"])
            for event in events
            if event.type == "edit"
            for reference in (event.data["before"], event.data["after"])
        }
        for name in contents:
            with pytest.raises(urllib.error.HTTPError, match="404"):
                server.get(f"/api/blobs/{name}")

    _assert_diff(workspace, before)
    _assert_events(events)
    _assert_edits(events, before, workspace, contents)
    _assert_context(events, requests, stored)
    _assert_counts(events, requests)


def _assert_diff(workspace: Path, before: dict[str, bytes]) -> None:
    changed = subprocess.run(
        ["git", "status", "--porcelain"], cwd=workspace, check=True, capture_output=True, text=True
    ).stdout
    assert sorted(line[3:] for line in changed.splitlines() if line.startswith(" M")) == sorted(FILES)
    lists = before[FILES[0]].decode()
    assert (workspace / FILES[0]).read_text() == lists.replace(SOURCE, REPAIRED)
    diff = subprocess.run(
        ["git", "diff", "--numstat"], cwd=workspace, check=True, capture_output=True, text=True
    ).stdout
    assert {tuple(line.split("\t")) for line in diff.splitlines()} == {
        ("2", "0", FILES[0]),
        ("1", "0", FILES[1]),
        ("1", "1", FILES[2]),
    }


def _assert_events(events: list[Event]) -> None:
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    shape = [event.type for event in events if event.type not in ("text", "thought", "tool.output")]
    kinds = [kind for kind in shape if kind != "workspace"]
    assert shape.count("workspace") == 1
    assert shape.index("workspace") < shape.index("edit")
    assert kinds[:3] == ["session.created", "prompt", "turn.started"]
    assert kinds[-1] == "turn.ended"
    assert kinds.count("generation") == len(SCRIPT)
    assert kinds.count("tool.call") == kinds.count("tool.result") == 8
    assert kinds.count("edit") == 3
    assert "error" not in kinds
    calls = {event.data["call_id"]: event for event in events if event.type == "tool.call"}
    results = {event.data["call_id"]: event for event in events if event.type == "tool.result"}
    assert calls.keys() == results.keys()
    assert all(results[id].seq > calls[id].seq for id in calls)
    assert all("error" not in event.data for event in results.values())
    names = [event.data["name"] for event in events if event.type == "tool.call"]
    assert names == ["grep", "read", "read", "read", "edit", "edit", "edit", "shell"]
    shell = next(event for event in results.values() if event.data["name"] == "shell")
    assert shell.data["data"]["exit_code"] == 0
    assert "632 passed" in shell.data["text"]
    assert events[-1].data["reason"] == "end_turn"
    said: dict[str, str] = {}
    for event in (event for event in events if event.type == "text"):
        said[event.data["messageId"]] = said.get(event.data["messageId"], "") + event.data["text"]
    assert list(said.values()) == [turn["text"] for turn in SCRIPT if "text" in turn]


def _assert_edits(
    events: list[Event], before: dict[str, bytes], workspace: Path, contents: dict[str, bytes]
) -> None:
    for event in (event for event in events if event.type == "edit"):
        path, old, new = event.data["path"], event.data["before"], event.data["after"]
        assert contents[old["hash"]] == before[path]
        assert contents[new["hash"]] == (workspace / path).read_bytes()
        assert content_hash(before[path]) == old["hash"]


def _assert_context(
    events: list[Event], requests: list[dict[str, Any]], stored: list[dict[str, Any]]
) -> None:
    """The fold of the log up to a generation is the request the model received, byte for byte."""
    generations = [event for event in events if event.type == "generation"]
    assert len(requests) == len(generations) == len(stored)
    for event, request, record in zip(generations, requests, stored, strict=True):
        state = fold(events[: event.seq - 1])
        rebuilt = items(state, [])
        assert [rebuilt[0], *rebuilt[2:]] == request["messages"]
        assert rebuilt[1]["tools"] == request["tools"]
        assert record["messages"] == request["messages"]
        assert record["tools"] == request["tools"]
        assert event.data["prompt"]["messages"] == len(request["messages"])
    for earlier, later, event in zip(requests, requests[1:], generations[1:], strict=False):
        count = len(earlier["messages"])
        assert later["messages"][:count] == earlier["messages"]
        whole = len(orjson.dumps(later["messages"])) + len(orjson.dumps(later["tools"]))
        prompt = event.data["prompt"]
        assert abs(prompt["bytes"] - whole) < 200
        assert prompt["shared"] == generations[generations.index(event) - 1].data["prompt"]["bytes"]


def _assert_counts(events: list[Event], requests: list[dict[str, Any]]) -> None:
    """Token counts are the provider's own, in each generation and summed over the turn."""
    usages = [event.data["usage"] for event in events if event.type == "generation"]
    prompts = [len(orjson.dumps([request["tools"], request["messages"]])) // 4 for request in requests]
    assert [usage["input"] for usage in usages] == prompts
    written = [
        turn.get("text", "")
        + "".join(orjson.dumps(made["arguments"]).decode() for made in turn.get("calls", ()))
        for turn in SCRIPT
    ]
    assert [usage["output"] for usage in usages] == [max(1, len(token_ids(text))) for text in written]
    assert usages[0].get("cached", 0) == 0
    for previous, usage in pairwise(usages):
        assert usage["cached"] >= 0.98 * previous["input"]
    total = events[-1].data["usage"]
    for field in ("input", "cached", "output"):
        assert total[field] == sum(usage.get(field, 0) for usage in usages)
