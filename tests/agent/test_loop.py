"""The agent loop, with real tools on a real folder and a scripted model behind a real endpoint."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import orjson
import pytest

from agent import ask, run_turn
from agent.approval import Decision
from agent.events import ApprovalRequested, Event, Live, Prompt
from agent.state import fold
from tests.support.turns import call, data, kinds, opened, paired, turn, until


async def test_a_turn_is_a_row_of_events_ending_in_end_turn(root: Path, script: Any) -> None:
    model = script([{"text": "hi there"}])
    async with opened(root, model) as session:
        messages = [message async for message in ask(session, "hello")]
    events = [message for message in messages if isinstance(message, Event)]
    assert kinds(events)[:2] == ["prompt", "turn.started"]
    assert kinds(events)[-1] == "turn.ended"
    assert data(events, "turn.ended")[0]["reason"] == "end_turn"
    live = "".join(message.text for message in messages if isinstance(message, Live))
    stored = "".join(item["text"] for item in data(events, "text"))
    assert live == stored == data(events, "generation")[0]["text"]


async def test_reading_calls_run_side_by_side_and_changing_ones_in_order(root: Path, script: Any) -> None:
    model = script(
        [
            {
                "calls": [
                    call("read", path="a.py"),
                    call("read", path="b.py"),
                    call("edit", path="a.py", edits=[{"old": "one = 1", "new": "one = 11"}]),
                    call("edit", path="a.py", edits=[{"old": "one = 11", "new": "one = 111"}]),
                ]
            },
            {"text": "done"},
        ]
    )
    async with opened(root, model) as session:
        events = await turn(session)
    assert (root / "a.py").read_text() == "one = 111\n"
    groups = [item["group"] for item in data(events, "tool.call")]
    assert groups == [1, 1, 2, 3]
    announced = [item["call_id"] for item in data(events, "tool.call")]
    assert announced == [item["id"] for item in data(events, "generation")[0]["calls"]]
    assert paired(events)
    assert len(data(events, "edit")) == 2


async def test_consecutive_requests_share_their_prefix(root: Path, script: Any) -> None:
    steps = [{"text": f"step {i}", "calls": [call("read", path="a.py", start=i)]} for i in range(1, 9)]
    model = script([*steps, {"text": "done"}])
    async with opened(root, model) as session:
        await turn(session)
        await turn(session, "and again")
    bodies = [orjson.dumps([r["tools"], r["messages"]])[:-2] for r in model.requests]
    for earlier, later in itertools.pairwise(bodies):
        shared = next(
            (i for i, (a, b) in enumerate(zip(earlier, later, strict=False)) if a != b), len(earlier)
        )
        assert shared / len(earlier) >= 0.98
    generations = [event.data for event in session.log.events if event.type == "generation"]  # pyright: ignore
    assert all(g["usage"]["cached"] / p["usage"]["input"] >= 0.95 for p, g in itertools.pairwise(generations))
    for previous, generation in itertools.pairwise(generations):
        assert generation["prompt"]["shared"] == previous["prompt"]["bytes"]


async def test_a_mode_change_begins_a_new_prefix_and_nothing_else_does(root: Path, script: Any) -> None:
    model = script(["one", "two", "three"])
    async with opened(root, model) as session:
        await turn(session)
        (root / "AGENTS.md").write_text("Use tabs.")
        await turn(session)
        await session.configure(mode="plan")
        await turn(session)
    system = [request["messages"][0]["content"] for request in model.requests]
    assert system[0] == system[1] != system[2]
    assert "Use tabs." in system[2]


async def test_instructions_beside_the_code_come_with_the_first_file_read_there(
    root: Path, script: Any
) -> None:
    (root / "AGENTS.md").write_text("Root rules.")
    (root / "pkg" / "deep").mkdir(parents=True)
    (root / "pkg" / "AGENTS.md").write_text("Package rules.")
    (root / "pkg" / "deep" / "c.py").write_text("c = 3\n")
    model = script(
        [
            {"calls": [call("read", path="pkg/deep/c.py")]},
            {"calls": [call("read", path="pkg/deep/c.py", start=1)]},
            {"text": "done"},
        ]
    )
    async with opened(root, model) as session:
        events = await turn(session)
    texts = [item["text"] for item in data(events, "tool.result")]
    assert ["Package rules." in text for text in texts] == [True, False]
    assert not any("Root rules." in text for text in texts)
    assert "Root rules." in model.requests[0]["messages"][0]["content"]


async def test_a_steering_message_reaches_the_next_step(root: Path, script: Any) -> None:
    model = script(
        [
            {"calls": [call("shell", command="sleep 0.3; echo slept")]},
            {"text": "ok"},
        ]
    )
    async with opened(root, model) as session:
        running = asyncio.create_task(turn(session))
        await until(lambda: session.state.announced)
        await session.steer(Prompt(message_id="s", text="be quick"))
        events = await running
    last = model.requests[-1]["messages"]
    assert [m["role"] for m in last[-3:]] == ["assistant", "tool", "user"]
    assert last[-1]["content"] == "be quick"
    assert data(events, "generation")[-1]["steered"]
    assert session.state.steered == []


async def test_steering_at_the_last_moment_is_answered_in_the_same_turn(root: Path, script: Any) -> None:
    model = script([{"text": "a b c d e f g h", "delay_ms": 40}, {"text": "and the steer"}])
    async with opened(root, model) as session:
        running = asyncio.create_task(turn(session))
        await until(lambda: session.state.partial)
        await session.steer(Prompt(message_id="s", text="wait"))
        events = await running
    assert len(data(events, "generation")) == 2
    assert model.requests[1]["messages"][-1]["content"] == "wait"
    assert data(events, "turn.ended")[0]["reason"] == "end_turn"


async def test_plan_mode_changes_nothing(root: Path, script: Any) -> None:
    model = script(
        [
            {
                "calls": [
                    call("edit", path="a.py", edits=[{"old": "one", "new": "uno"}]),
                    call("shell", command="rm a.py"),
                ]
            },
            {"text": "a plan"},
        ]
    )
    async with opened(root, model, mode="plan") as session:
        events = await turn(session)
    assert (root / "a.py").read_text() == "one = 1\n"
    assert [result["synthetic"] for result in data(events, "tool.result")] == ["denied", "denied"]


async def test_always_is_a_rule_for_this_session(root: Path, script: Any) -> None:
    asked: list[ApprovalRequested] = []

    async def always(request: ApprovalRequested) -> Decision:
        asked.append(request)
        return Decision("allowed", "allow_always", "test")

    model = script(
        [
            {"calls": [call("edit", path="a.py", edits=[{"old": "one", "new": "uno"}])]},
            {"calls": [call("edit", path="b.py", edits=[{"old": "two", "new": "due"}])]},
            {"calls": [call("shell", command="echo 1")]},
            {"calls": [call("shell", command="python3 -m compileall a.py")]},
            {"calls": [call("shell", command="echo 1 && python3 -m compileall b.py | tail -1")]},
            {"calls": [call("shell", command="python3 -m compileall a.py; touch made")]},
            {"text": "done"},
        ]
    )
    async with opened(root, model, mode="ask", approve=always) as session:
        events = await turn(session)
        assert (root / "b.py").read_text() == "due = 2\n"
        assert [request.kind for request in asked] == ["edit", "execute", "execute"]
        assert asked[1].rules == ["shell:python3 -m compileall"]
        assert asked[1].options[1]["name"] == "Always allow `python3 -m compileall`"
        assert asked[2].reason == "`touch made` is not known to only read"
        assert [item["verdict"] for item in asked[2].parts] == ["allow", "ask"]
        assert session.state.rules == {"edit", "shell:python3 -m compileall"}
        assert asked[0].diffs == [{"path": "a.py", "old": "one = 1\n", "new": "uno = 1\n"}]
        assert fold(session.log.events).rules == session.state.rules  # pyright: ignore
        assert paired(events)


@pytest.mark.case("agent-25")
async def test_without_anybody_to_ask_the_answer_is_no(root: Path, script: Any) -> None:
    model = script([{"calls": [call("shell", command="touch made")]}, {"text": "could not"}])
    async with opened(root, model, mode="ask") as session:
        events = await turn(session)
    assert not (root / "made").exists()
    assert data(events, "approval.resolved")[0]["by"] == "headless"
    assert "did not allow" in data(events, "tool.result")[0]["text"]


async def test_forty_calls_in_one_step_all_get_their_result(root: Path, script: Any) -> None:
    model = script([{"calls": [call("read", path="a.py", start=1) for _ in range(40)]}, {"text": "done"}])
    async with opened(root, model) as session:
        events = await turn(session)
    assert len(data(events, "tool.result")) == 40
    assert paired(events)
    assert run_turn is not None


async def test_a_call_that_fails_says_what_it_was_about(root: Path, script: Any) -> None:
    """Its card has a title, though nothing could be proposed."""
    edit = call("edit", path="a.py", edits=[{"old": "nowhere", "new": "x"}])
    calls = [call("read", path="nope.py"), edit, call("grep", pattern="("), call("read", file="a.py")]
    model = script([{"calls": calls}, {"text": "done"}])
    async with opened(root, model) as session:
        events = await turn(session)
    titles = [item["title"] for item in data(events, "tool.call")]
    assert titles == ["Read nope.py", "Edit a.py", "Search (", "read"]
    assert "There is no file 'nope.py'" in data(events, "tool.result")[0]["text"]
