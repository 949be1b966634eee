"""What else must hold across segments: undo, broken turns, other clients of models, sessions of before."""

import asyncio
from pathlib import Path
from typing import Any, Literal

import pytest

from agent.events import Event
from agent.log import MemoryLog
from agent.models.client import Completion, Request
from agent.models.recorded import RecordedModel
from agent.state import fold
from agent.summary.size import next_tokens
from agent.undo import Target, take_back
from tests.agent.test_checkpoints import kept
from tests.support.turns import call, data, opened, paired, turn, until

GOOD = "Read big.txt and changed `a.py`; next comes b.py."
WINDOW = 12_000


@pytest.fixture
def big(root: Path) -> Path:
    (root / "big.txt").write_text("".join(f"line {i} {'word ' * 12}\n" for i in range(100)))
    return root


def log_of(session: Any) -> list[Event]:
    assert isinstance(session.log, MemoryLog)
    return list(session.log.events)


def reads(count: int) -> list[dict[str, Any]]:
    return [{"calls": [call("read", path="big.txt", start=i + 1)]} for i in range(count)]


def playing(steps: list[Any], summary: Any = GOOD) -> Any:
    left = list(steps)

    def answer(body: dict[str, Any]) -> Any:
        if "Please summarize the conversation" in str(body["messages"][-1]["content"]):
            return summary
        return left.pop(0) if len(left) > 1 else left[0]

    return answer


async def test_a_turn_of_several_segments_is_taken_back_whole(big: Path, script: Any) -> None:
    first = {"calls": [call("edit", path="a.py", edits=[{"old": "one = 1", "new": "one = 11"}])]}
    last = {"calls": [call("edit", path="b.py", edits=[{"old": "two = 2", "new": "two = 22"}])]}
    model = script(playing([{"calls": [call("read", path="b.py")]}, first, *reads(6), last, "done", "ok"]),
                   window=WINDOW)  # fmt: skip
    async with kept(big, model) as session:
        events = await turn(session)
        assert data(events, "summary") and not data(events, "summary")[0]["fallback"]
        assert (big / "b.py").read_text() == "two = 22\n"  # what was seen in an older segment still counts
        done = await take_back(session, log_of(session), Target(turn=1))
        assert done.event is not None
        assert (big / "a.py").read_text() == "one = 1\n" and (big / "b.py").read_text() == "two = 2\n"
        await turn(session, "what now?")
        assert fold(log_of(session)).messages == session.state.messages
    assert "your change was taken back" in model.requests[-1]["messages"][-1]["content"]
    assert "took your change back" in session.state.ledger.render(4000)


@pytest.mark.case("agent-5")
async def test_what_a_cancelled_step_left_open_is_closed_in_its_segment(big: Path, script: Any) -> None:
    waiting = {"calls": [call("read", path="b.py"), call("shell", command="sleep 60")]}
    model = script(playing([*reads(6), waiting, *reads(6), "done"]), window=WINDOW)
    async with opened(big, model) as session:
        running = asyncio.create_task(turn(session))
        await until(lambda: "shell" in session.state.pending_calls.values() and session.state.announced)
        assert session.state.segment == 2
        session.cancel()
        assert paired(await running)
        await turn(session, "go on")  # and is summarised again, with the synthetic results in it
        assert session.state.segment >= 3
    for body in model.requests:
        called = [one["id"] for m in body["messages"] for one in m.get("tool_calls") or ()]
        assert called == [m["tool_call_id"] for m in body["messages"] if m["role"] == "tool"]


async def test_a_turn_cancelled_while_it_is_summarised_keeps_its_segment(big: Path, script: Any) -> None:
    slow = {"text": GOOD, "first_ms": 60_000}
    model = script(playing([*reads(6), "done"], slow), window=WINDOW)
    async with opened(big, model) as session:
        running = asyncio.create_task(turn(session))
        asked = "Please summarize the conversation"
        await until(lambda: model.requests and asked in str(model.requests[-1]["messages"][-1]["content"]))
        before = list(session.state.messages)
        session.cancel()
        events = await running
        assert data(events, "turn.ended")[0]["reason"] == "cancelled"
        assert session.state.messages == before and session.state.segment == 1
        assert not data(events, "summary")


async def test_a_recording_plays_its_summaries_where_they_are_asked_for(big: Path, script: Any) -> None:
    model = script(playing([*reads(6), "done"]), window=WINDOW)
    async with opened(big, model) as session:
        await turn(session)
        events = log_of(session)
    written = [one["text"] for one in data(events, "generation") if one["purpose"] == "summary"]
    recorded = RecordedModel("S", events)

    async def next_of(purpose: Literal["step", "summary"]) -> Completion:
        chunks = [chunk async for chunk in recorded.sample(Request("s", [], [], purpose=purpose))]
        assert isinstance(chunks[-1], Completion)
        return chunks[-1]

    assert written and set(written) == {GOOD}
    assert (await next_of("step")).calls[0].name == "read"
    assert [(await next_of("summary")).text for _ in written] == written
    assert (await next_of("step")).calls[0].name == "read"
    # One that the recording has no summary for is empty, which is refused: nothing is made up.
    assert (await next_of("summary")).text == ""


async def test_a_log_of_before_there_were_segments_is_the_first_one(root: Path, script: Any) -> None:
    model = script(["one", "two"])
    async with opened(root, model) as session:
        await turn(session)
        events = log_of(session)
    old = [
        event.model_copy(
            update={"data": {k: v for k, v in event.data.items() if k not in ("segment", "purpose")}}
        )
        for event in events
    ]
    state = fold(old)
    assert state.segment == 1 and state.messages == session.state.messages
    assert next_tokens(state) == next_tokens(session.state) > 0
    async with opened(root, model, events=old) as session:
        assert data(await turn(session), "turn.ended")[0]["reason"] == "end_turn"
