"""How turns end: cancelled, cut short, broken off, killed; always said, and always resumable."""

import asyncio
import contextlib
import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest
from ulid import ULID

from agent import ask
from agent.approval import Decision
from agent.events import ApprovalRequested, Draft, Event, Live
from agent.log import LogError, MemoryLog
from agent.loop import EMPTY_ENDED, MALFORMED_ENDED, REPEATS_ENDED, TurnRunning, recover
from tests.support.turns import call, data, opened, paired, turn, until
from tools.shell_session import ShellSession


async def test_cancel_while_the_model_speaks(root: Path, script: Any) -> None:
    model = script([{"text": "word " * 500, "delay_ms": 20}])
    async with opened(root, model) as session:
        running = asyncio.create_task(turn(session))
        await until(lambda: len(session.state.partial) > 10)
        assert session.cancel()
        events = await running
        assert data(events, "turn.ended")[0]["reason"] == "cancelled"
        await until(lambda: model.cut == 1)
        assert not session.running
        assert session.state.messages[-1]["content"].startswith("word word")
        assert not session.cancel()


async def test_cancel_before_anything_happened_is_an_end_like_any_other(root: Path, script: Any) -> None:
    class Slow(MemoryLog):
        def submit(self, draft: Draft) -> "asyncio.Future[Event]":
            loop, future = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()
            loop.call_later(0.05, lambda: future.set_result(MemoryLog.submit(self, draft).result()))
            return future

    log = Slow(str(ULID()))
    model = script(["never asked"])
    async with opened(root, model, log=log) as session:
        running = asyncio.create_task(turn(session))
        await until(lambda: session.running)
        await asyncio.sleep(0.01)
        session.cancel()
        events = await running
        assert [event.type for event in events] == ["prompt", "turn.ended"]
        assert events[-1].data["reason"] == "cancelled"
    assert model.requests == []


async def test_cancel_while_a_command_runs_closes_its_call(root: Path, script: Any) -> None:
    model = script(
        [{"calls": [call("shell", command="echo started; sleep 60"), call("read", path="a.py")]}, "ok"]
    )
    async with opened(root, model) as session:
        running = asyncio.create_task(turn(session))
        await until(lambda: session.state.announced)
        await asyncio.sleep(0.2)
        session.cancel()
        events = await asyncio.wait_for(running, 5)
        assert paired(events)
        results = data(events, "tool.result")
        assert [result["synthetic"] for result in results] == ["cancelled", "cancelled"]
        assert data(events, "turn.ended")[0]["reason"] == "cancelled"
        events = await turn(session, "go on")
        assert data(events, "turn.ended")[0]["reason"] == "end_turn"


async def test_cancel_while_an_approval_waits(root: Path, script: Any) -> None:
    asked = asyncio.Event()

    async def never(request: ApprovalRequested) -> Decision:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    model = script([{"calls": [call("shell", command="touch made")]}, "ok"])
    async with opened(root, model, mode="ask", approve=never) as session:
        running = asyncio.create_task(turn(session))
        await asked.wait()
        session.cancel()
        events = await running
    assert data(events, "approval.resolved")[0]["outcome"] == "cancelled"
    assert paired(events)


async def test_leaving_the_iterator_cancels_the_turn(root: Path, script: Any) -> None:
    model = script([{"text": "word " * 500, "delay_ms": 20}])
    async with opened(root, model) as session:
        stream = ask(session, "go")
        async with contextlib.aclosing(stream):
            async for message in stream:
                if isinstance(message, Live):
                    break
        assert not session.running
        assert session.state.end_reason == "cancelled"


async def test_a_second_turn_cannot_start_while_one_runs(root: Path, script: Any) -> None:
    model = script([{"text": "word " * 50, "delay_ms": 20}])
    async with opened(root, model) as session:
        running = asyncio.create_task(turn(session))
        await until(lambda: session.running)
        with pytest.raises(TurnRunning, match="queue"):
            await turn(session)
        session.cancel()
        await running


async def test_the_step_limit_is_an_honest_end(root: Path, script: Any) -> None:
    model = script(lambda body: {"calls": [call("read", path="a.py", start=len(body["messages"]))]})
    async with opened(root, model, max_steps=4) as session:
        events = await turn(session)
    assert data(events, "turn.ended")[0]["reason"] == "max_steps"
    assert len(data(events, "generation")) == 4 == data(events, "turn.ended")[0]["steps"]
    assert paired(events)


async def test_a_call_repeated_for_ever_is_refused_and_ends_the_turn(root: Path, script: Any) -> None:
    model = script([{"calls": [call("shell", command="echo x >> log.txt")]}])
    async with opened(root, model) as session:
        events = await turn(session)
    assert (root / "log.txt").read_text() == "x\nx\n"
    results = data(events, "tool.result")
    assert [result.get("synthetic") for result in results] == [None, None, *["repeated"] * 4]
    assert data(events, "turn.ended")[0]["reason"] == "malformed"
    assert len(results) == REPEATS_ENDED
    assert {error["error"] for error in data(events, "error")} == {"repeated_call"}


@pytest.mark.parametrize(
    ("bad", "parse"),
    [
        ({"name": "read", "raw": '{"path": '}, "malformed"),
        ({"name": "read", "raw": "[]"}, "malformed"),
        ({"name": "read", "raw": '{"path": 7}'}, "invalid"),
        ({"name": "read", "raw": '{"path": "a.py", "lines": 3}'}, "invalid"),
        ({"name": "teleport", "raw": "{}"}, "unknown_tool"),
    ],
)
async def test_a_bad_call_is_answered_so_that_the_model_can_repair_it(
    root: Path, script: Any, bad: dict[str, str], parse: str
) -> None:
    model = script([{"calls": [bad]}, {"calls": [call("read", path="a.py")]}, {"text": "done"}])
    async with opened(root, model) as session:
        events = await turn(session)
    assert data(events, "tool.call")[0]["parse"] == parse
    assert data(events, "error")[0]["error"] == "malformed_call"
    assert data(events, "tool.result")[0]["error"] == "invalid_arguments"
    assert data(events, "turn.ended")[0]["reason"] == "end_turn"
    for request in model.requests:
        for message in request["messages"]:
            for made in message.get("tool_calls", []):
                assert isinstance(orjson.loads(made["function"]["arguments"]), dict)


async def test_nothing_but_malformed_calls_ends_the_turn(root: Path, script: Any) -> None:
    model = script(lambda body: {"calls": [{"name": "read", "raw": "{" + " " * len(body["messages"])}]})
    async with opened(root, model) as session:
        events = await turn(session)
    assert data(events, "turn.ended")[0]["reason"] == "malformed"
    assert len(data(events, "generation")) == MALFORMED_ENDED
    assert paired(events)


async def test_empty_answers_end_the_turn(root: Path, script: Any) -> None:
    model = script([{"text": ""}])
    async with opened(root, model) as session:
        events = await turn(session)
    assert data(events, "turn.ended")[0]["reason"] == "malformed"
    assert len(data(events, "generation")) == EMPTY_ENDED


async def test_an_answer_cut_off_at_the_output_limit_is_said(root: Path, script: Any) -> None:
    model = script([{"text": "half a sent", "finish": "length"}])
    async with opened(root, model) as session:
        events = await turn(session)
    assert data(events, "turn.ended")[0]["reason"] == "overlong"


async def test_an_endpoint_that_dies_midway_is_asked_again(root: Path, script: Any) -> None:
    model = script([{"text": "half of it", "die_after": 2}, {"text": "the whole answer"}])
    async with opened(root, model) as session:
        events = await turn(session)
    assert data(events, "turn.ended")[0]["reason"] == "end_turn"
    assert any(error["where"] == "model" for error in data(events, "error"))
    assert [m["content"] for m in session.state.messages] == ["go", "the whole answer"] or (
        session.state.messages[-1]["content"].strip() == "the whole answer"
    )


async def test_a_model_that_cannot_answer_ends_the_turn_with_its_reason(root: Path, script: Any) -> None:
    model = script([{"status": 401, "error": {"error": {"message": "bad key"}}}])
    async with opened(root, model) as session:
        events = await turn(session)
        end = data(events, "turn.ended")[0]
        assert end["reason"] == "model_error"
        assert end["message"]


@pytest.mark.case("agent-5")
@pytest.mark.parametrize("blobs", [True, False])
@pytest.mark.parametrize("keep", range(3, 14))
async def test_a_log_cut_anywhere_opens_again_and_goes_on(
    root: Path, script: Any, keep: int, blobs: bool
) -> None:
    model = script(
        [
            {"text": "hm", "calls": [call("read", path="a.py"), call("shell", command="echo hi")]},
            {"text": "fine"},
            {"text": "resumed"},
        ]
    )
    async with opened(root, model) as session:
        await turn(session)
        whole = list(session.log.events)  # pyright: ignore[reportAttributeAccessIssue]
    log = MemoryLog(session.id, whole[:keep])
    if blobs:
        log.blobs.update(session.log.blobs)  # pyright: ignore[reportAttributeAccessIssue]
    async with opened(root, model, log=log) as again:
        await asyncio.gather(recover(again), recover(again))
        assert not again.state.running
        assert len([event for event in log.events if event.type == "turn.ended"]) <= 1
        assert again.state.pending_calls == {}
        model.requests.clear()
        events = await turn(again, "go on")
        assert data(events, "turn.ended")[0]["reason"] == "end_turn"
        assert paired(log.events)
    messages = model.requests[0]["messages"]
    for at, message in enumerate(messages):
        for made in message.get("tool_calls", []):
            answers = [m for m in messages[at:] if m.get("tool_call_id") == made["id"]]
            assert len(answers) == 1


async def test_a_log_that_fails_ends_the_turn_and_keeps_the_workspace(root: Path, script: Any) -> None:
    class Full(MemoryLog):
        def submit(self, draft: Draft) -> "asyncio.Future[Event]":
            if len(self.events) >= 5:
                future: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
                future.set_exception(LogError("no space left on the disk"))
                return future
            return super().submit(draft)

    model = script([{"calls": [call("edit", path="a.py", edits=[{"old": "one", "new": "uno"}])]}])
    log = Full(str(ULID()))
    async with opened(root, model, log=log) as session:
        with pytest.raises(LogError, match="no space"):
            await turn(session)
        assert not session.running
        assert len(log.events) == 5


async def test_a_log_that_takes_no_more_text_ends_the_turn_with_its_reason(root: Path, script: Any) -> None:
    """The flush of streamed text runs in a timer, where nobody hears an exception."""

    class Backlogged(MemoryLog):
        def submit(self, draft: Draft) -> "asyncio.Future[Event]":
            if draft.type == "text" and len(self.events) > 4:
                raise LogError("too much waits to be stored")
            return super().submit(draft)

    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    log = Backlogged(str(ULID()))
    async with opened(root, script([{"text": "word " * 40, "delay_ms": 10}]), log=log) as session:
        with pytest.raises(LogError, match="too much waits"):
            await turn(session)
    stored = "".join(event.data["text"] for event in log.events if event.type == "text")
    assert stored and stored == ("word " * 40)[: len(stored)]
    assert unheard == []


async def test_no_call_acts_on_after_its_turn(root: Path, script: Any) -> None:
    """Of calls that run side by side one stops at once when cancelled, another needs a moment."""
    ended: list[str] = []
    waiting: set[str] = set()

    async def refresh(path: str) -> None:
        waiting.add(path)
        try:
            await asyncio.sleep(60)
        finally:
            if path == "b.py":
                await asyncio.sleep(0.2)
            ended.append(path)

    async with opened(
        root, script([{"calls": [call("read", path="a.py"), call("read", path="b.py")]}])
    ) as session:
        session.workspace.refresh = refresh
        running = asyncio.create_task(turn(session))
        await until(lambda: len(waiting) == 2)
        session.cancel()
        events = await running
        assert ended == ["a.py", "b.py"]
        assert paired(events)
        assert data(events, "turn.ended")[0]["reason"] == "cancelled"


async def test_a_machine_that_has_no_room_for_the_facts_of_a_turn_does_not_keep_it_from_ending(
    root: Path, script: Any
) -> None:
    async with opened(root, script(["hello"])) as session:
        sandbox = await ShellSession.of(session.workspace).sandbox()
        shutil.rmtree(sandbox.run_folder)
        events = await turn(session)
        assert data(events, "turn.ended")[0]["reason"] == "end_turn"
        if sandbox.confined:
            assert "No such file" in data(events, "workspace")[0]["git"]["error"]
