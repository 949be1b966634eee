"""The agent loop, with real tools on a real folder and a scripted model behind a real endpoint."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from ulid import ULID

from agent import ask, run_turn
from agent.approval import Ask, Decision, deny_headless
from agent.events import ApprovalRequested, Draft, Event, Live, Mode, Prompt, SessionCreated, draft
from agent.log import LogError, MemoryLog
from agent.loop import EMPTY_ENDED, MALFORMED_ENDED, REPEATS_ENDED, TurnRunning, recover
from agent.models.catalog import open_model
from agent.models.settings import ModelSettings
from agent.session import Session
from agent.state import fold
from tests.support.scripted_model import ScriptedModel
from tools.sandbox.policy import SandboxPolicy
from tools.workspace import Workspace

Open = Callable[..., contextlib.AbstractAsyncContextManager[Session]]


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "a.py").write_text("one = 1\n")
    (folder / "b.py").write_text("two = 2\n")
    return folder


@pytest.fixture
def script() -> Iterator[Callable[..., ScriptedModel]]:
    with contextlib.ExitStack() as stack:
        yield lambda turns, **options: stack.enter_context(ScriptedModel(turns, **options))


async def session_on(
    root: Path,
    model: ScriptedModel,
    *,
    mode: Mode = "full",
    approve: Ask = deny_headless,
    events: Sequence[Event] = (),
    log: MemoryLog | None = None,
    **options: Any,
) -> Session:
    settings = ModelSettings(provider="openai", model="scripted", base_url=model.base_url)
    client = open_model("scripted", models={"scripted": settings}, cache_dir=root)
    log = log or MemoryLog(str(ULID()), events)
    if not log.events:
        created = SessionCreated(
            workspace=str(root), user_id="local", model="scripted", mode=mode, profile="full"
        )
        await log.submit(draft("session.created", created))
    workspace = Workspace(root, SandboxPolicy())
    return Session(log, log.events, workspace, client, approve, **options)


@contextlib.asynccontextmanager
async def opened(root: Path, model: ScriptedModel, **options: Any) -> AsyncIterator[Session]:
    session = await session_on(root, model, **options)
    try:
        yield session
    finally:
        await session.close()
        await session.model.close()


async def turn(session: Session, text: str = "go") -> list[Event]:
    return [message async for message in ask(session, text) if isinstance(message, Event)]


def kinds(events: Sequence[Event], *which: str) -> list[str]:
    return [event.type for event in events if not which or event.type in which]


def data(events: Sequence[Event], type: str) -> list[dict[str, Any]]:
    return [event.data for event in events if event.type == type]


def paired(events: Sequence[Event]) -> bool:
    """Every call the model wrote has exactly one result, and later requests show them in pairs."""
    called = [call["id"] for event in events if event.type == "generation" for call in event.data["calls"]]
    answered = [event.data["call_id"] for event in events if event.type == "tool.result"]
    return sorted(called) == sorted(answered)


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


async def until(condition: Callable[[], Any], seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


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

    model = script([{"calls": [call("shell", command="true")]}, "ok"])
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
            {"calls": [call("shell", command="echo 1 && echo 2")]},
            {"text": "done"},
        ]
    )
    async with opened(root, model, mode="ask", approve=always) as session:
        events = await turn(session)
        assert (root / "b.py").read_text() == "due = 2\n"
        assert [request.kind for request in asked] == ["edit", "execute", "execute"]
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


async def test_forty_calls_in_one_step_all_get_their_result(root: Path, script: Any) -> None:
    model = script([{"calls": [call("read", path="a.py", start=1) for _ in range(40)]}, {"text": "done"}])
    async with opened(root, model) as session:
        events = await turn(session)
    assert len(data(events, "tool.result")) == 40
    assert paired(events)
    assert run_turn is not None
