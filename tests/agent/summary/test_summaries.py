"""Self-summaries of real turns: real tools, a scripted model behind a real endpoint with a small window."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from agent.events import Event, Prompt
from agent.prompt_chain import resolve, split
from agent.session import Session
from agent.state import fold
from tests.support.scripted_model import ScriptedModel
from tests.support.turns import call, data, opened, paired, turn

WINDOW = 12_000
"""Tokens of the endpoint, whose count is bytes / 4. The tools and the system message take about 5,300."""
TODOS = [
    {"content": "port the parser", "status": "completed"},
    {"content": "measure throughput of the lexer", "status": "in_progress"},
    {"content": "document the grammar", "status": "pending"},
]
GOOD = (
    "The task is to make the parser fast. I read big.txt. Next: measure the throughput of the lexer, then "
    "document the grammar."
)


def asked_to_summarise(body: dict[str, Any]) -> bool:
    return "Please summarize the conversation" in str(body["messages"][-1].get("content"))


def opening(body: dict[str, Any]) -> str:
    """The first message behind the system message."""
    return str(body["messages"][1]["content"])


def summarising(steps: Callable[[dict[str, Any]], Any], summary: Callable[[dict[str, Any]], Any]) -> Any:
    return lambda body: summary(body) if asked_to_summarise(body) else steps(body)


def row(items: list[Any]) -> Callable[[dict[str, Any]], Any]:
    """One after the other; the last again."""
    left = list(items)
    return lambda body: left.pop(0) if len(left) > 1 else left[0]


def reading(number: int) -> dict[str, Any]:
    return {"text": f"step {number}", "calls": [call("read", path="big.txt", start=number)]}


@pytest.fixture
def big(root: Path) -> Path:
    (root / "big.txt").write_text("".join(f"line {i} {'word ' * 12}\n" for i in range(100)))
    return root


def pairs(messages: list[dict[str, Any]]) -> bool:
    """Every result follows its call, every call has its result."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return False
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            return False
        waiting = [one["id"] for one in message.get("tool_calls") or ()]
    return not waiting


async def exact(session: Session, model: ScriptedModel) -> bool:
    """Every stored prompt is one that the model was sent."""
    sent = [body["messages"] for body in model.requests]
    stored = [event.data for event in events_of(session) if event.type == "generation"]
    prompts = [split(await resolve(one["prompt"]["node"], session.log.blob))[0] for one in stored]
    return bool(prompts) and all(prompt in sent for prompt in prompts)


def events_of(session: Session) -> list[Event]:
    return session.log.events  # pyright: ignore[reportAttributeAccessIssue] - a log in memory


def ends(events: list[Event]) -> tuple[str, str]:
    ended = data(events, "turn.ended")[-1]
    return ended["reason"], ended.get("message", "")


async def test_a_full_context_is_summarised_on_its_live_prefix(big: Path, script: Any) -> None:
    steps = row([{"calls": [call("todo", items=TODOS)]}, *map(reading, range(1, 7)), "done"])
    model = script(summarising(steps, lambda body: {"text": GOOD, "thought": "what matters?"}), window=WINDOW)
    async with opened(big, model, summarize_at=0.8) as session:
        events = await turn(session, "make the parser fast")
        assert ends(events) == ("end_turn", "")
        assert await exact(session, model)
        at = next(i for i, body in enumerate(model.requests) if asked_to_summarise(body))
        before, request, after = model.requests[at - 1 : at + 2]
        # The request extends the prompt of the step before it, with the same tools: its cache holds.
        assert request["messages"][: len(before["messages"])] == before["messages"]
        assert request["tools"] == before["tools"] == after["tools"]
        assert request["messages"][0] == after["messages"][0]
        assert [message["role"] for message in after["messages"]] == ["system", "user"]
        assert GOOD in opening(after) and "make the parser fast" in opening(after)
        assert "[>] measure throughput of the lexer" in opening(after)
        summary = data(events, "summary")[0]
        assert summary["trigger"] == "budget" and not summary["fallback"] and not summary["refused"]
        assert (summary["segment_before"], summary["segment"], summary["number"]) == (1, 2, 1)
        assert summary["tokens_after"] < summary["tokens_before"]
        assert summary["input"] and summary["output"] and summary["text"] == GOOD
        generations = data(events, "generation")
        (written,) = [one for one in generations if one["id"] == summary["generation"]]
        assert written["purpose"] == "summary" and written["thought"] == "what matters?"
        assert written["usage"]["cached"] / written["usage"]["input"] > 0.6
        assert [one["segment"] for one in generations] == sorted(one["segment"] for one in generations)
        assert {one["segment"] for one in generations} == {1, 2}
        assert len(generations) == session.state.steps + 1
        # It is no message of the conversation: nothing of it was streamed as text.
        assert GOOD not in "".join(one["text"] for one in data(events, "text"))
        assert fold(events_of(session)).messages == session.state.messages
    assert not model.errors


REFUSED = [
    ({"text": "All of it is finished, nothing else is known."}, "says nothing of what is still to be done"),
    ({"text": GOOD + " I changed `other.py` and it works."}, "files were changed that were not: other.py"),
    ({"text": GOOD + " again" * 30_000}, "not shorter"),
    ({"text": "  \n"}, "empty"),
    ({"text": GOOD, "finish": "length"}, "cut off"),
    ({"calls": [{"name": "read", "arguments": {"path": "a.py"}}]}, "called tools"),
]


@pytest.mark.parametrize(("bad", "why"), REFUSED, ids=[why for _, why in REFUSED])
async def test_a_bad_summary_is_refused_and_the_kept_state_stands_in_the_next_prompt(
    big: Path, script: Any, bad: dict[str, Any], why: str
) -> None:
    edit = call("edit", path="a.py", edits=[{"old": "one = 1", "new": "one = 11"}])
    steps = row(
        [
            {"calls": [call("todo", items=TODOS)]},
            {"calls": [edit, call("shell", command="false"), call("read", path="b.py")]},
            *map(reading, range(1, 5)),
            "done",
        ]
    )
    model = script(summarising(steps, lambda body: bad), window=WINDOW)
    async with opened(big, model) as session:
        events = await turn(session, "make the parser fast, and keep the tests green")
        assert ends(events)[0] == "end_turn"
        assert await exact(session, model)
        after = fold(events_of(session)).ledger.files["a.py"].after
    (summary, *_) = data(events, "summary")
    assert summary["fallback"] and len(summary["refused"]) == 3
    assert all(why in one["reason"] for one in summary["refused"])
    assert all(why in body["messages"][-1]["content"] for body in model.requests if "not taken" in str(body))
    at = max(i for i, body in enumerate(model.requests) if asked_to_summarise(body))
    text = opening(model.requests[at + 1])
    assert "make the parser fast, and keep the tests green" in text
    assert "[x] port the parser" in text and "[>] measure throughput of the lexer" in text
    assert "[ ] document the grammar" in text
    assert after and f"a.py: now {after[:12]}, +1 −1" in text
    assert "exit 1: false" in text
    assert "Summaries so far, with this one: 1" in text
    assert all(pairs(body["messages"]) for body in model.requests)
    assert summary["kept"] > 0 and len(model.requests[at + 1]["messages"]) == summary["kept"] + 2
    # The calls of a summary were not run: their text is in no result.
    assert not any("one = 1" in result["text"] for result in data(events, "tool.result")[4:])


async def test_a_second_try_is_taken(big: Path, script: Any) -> None:
    steps = row([{"calls": [call("todo", items=TODOS)]}, *map(reading, range(1, 7)), "done"])
    summaries = row(["nothing", GOOD])
    model = script(summarising(steps, summaries), window=WINDOW)
    async with opened(big, model) as session:
        events = await turn(session)
    (summary,) = data(events, "summary")
    assert not summary["fallback"] and len(summary["refused"]) == 1
    assert summary["refused"][0]["generation"] != summary["generation"]


async def test_the_model_may_ask_for_it(root: Path, script: Any) -> None:
    steps = row([{"calls": [call("summarize")]}, "done"])
    model = script(summarising(steps, lambda body: "Nothing yet."), window=100_000)
    async with opened(root, model) as session:
        events = await turn(session, "look " * 400)
    (error,) = data(events, "error")  # the user's words stay whole, so nothing would be gained
    assert error["error"] == "summary_refused" and "not shorter" in error["message"]
    assert ends(events)[0] == "end_turn"
    (root / "long.txt").write_text("some line of text\n" * 400)
    steps = row([{"calls": [call("read", path="long.txt")]}, {"calls": [call("summarize")]}, "done"])
    model = script(summarising(steps, lambda body: "Read it."), window=100_000)
    async with opened(root, model) as session:
        events = await turn(session)
    (summary,) = data(events, "summary")
    assert summary["trigger"] == "tool" and summary["text"] == "Read it."
    assert ends(events)[0] == "end_turn"


async def test_a_model_that_only_asks_for_summaries_does_not_get_them_for_ever(
    root: Path, script: Any
) -> None:
    (root / "long.txt").write_text("some line of text\n" * 400)
    steps = row([{"calls": [call("read", path="long.txt")]}, {"calls": [call("summarize")]}])
    model = script(summarising(steps, lambda body: "Read it."), window=100_000)
    async with opened(root, model) as session:
        events = await turn(session)
    assert len(data(events, "summary")) == 1
    assert ends(events)[0] == "malformed"


async def test_twenty_segments_stay_within_the_window(big: Path, script: Any) -> None:
    made: list[int] = []

    def summary(body: dict[str, Any]) -> Any:
        made.append(len(made))
        return f"Segment {len(made)} is done: measure throughput of the lexer, document the grammar. {GOOD}"

    def steps(body: dict[str, Any]) -> Any:
        if len(made) >= 20:
            return "all done"
        return reading(len(body["messages"]) % 50 + 1)

    first = {"calls": [call("todo", items=TODOS)]}
    begun: list[bool] = []

    def play(body: dict[str, Any]) -> Any:
        if not begun:
            begun.append(True)
            return first
        return summary(body) if asked_to_summarise(body) else steps(body)

    model = script(play, window=WINDOW)
    async with opened(big, model, max_summaries=30) as session:
        events = await turn(session, "twenty segments")
        assert ends(events) == ("end_turn", "")
        state = fold(events_of(session))
        assert state.messages == session.state.messages and state.segment == 21
        assert await exact(session, model)
    assert len(data(events, "summary")) == 20
    assert all(generation["usage"]["input"] <= WINDOW for generation in data(events, "generation"))
    assert not data(events, "error")  # no request was refused for its length
    assert all(pairs(body["messages"]) for body in model.requests)
    assert "twenty segments" in opening(model.requests[-1])
    assert "Summaries so far, with this one: 20" in opening(model.requests[-1])
    assert paired(events)


@pytest.mark.case("agent-26")
@pytest.mark.parametrize("labelled", [True, False])
async def test_large_results_in_a_small_window_are_survived_a_bounded_number_of_times(
    root: Path, script: Any, labelled: bool
) -> None:
    """A window that one result overflows, a summary request that itself does not fit, and a refusal that does
    not say what it is."""
    (root / "big.txt").write_text("".join(f"line {i} {'word ' * 18}\n" for i in range(240)))
    steps = row([{"calls": [call("todo", items=TODOS)]}, *map(reading, range(1, 99))])
    unlabelled = {"status": 400, "error": {"error": {"message": "Bad request", "type": "bad"}}}
    options = {} if labelled else {"overflow": unlabelled}
    # As much beside the system message and the tools as a window of 4,000 tokens has; a result takes 6,000.
    model = script(summarising(steps, lambda body: GOOD), window=5_600 + 4_000, **options)
    async with opened(root, model, max_summaries=5) as session:
        events = await turn(session, "make the parser fast")
        assert await exact(session, model)
        reason, message = ends(events)
    summaries = data(events, "summary")
    assert len(summaries) == 5
    assert reason == "overlong" and "summarised 5 times" in message
    assert any(one["pruned"] for one in summaries)
    assert all(one["tokens_after"] < one["tokens_before"] for one in summaries)
    between = [event.type for event in events if event.type in ("summary", "tool.result")]
    assert "summary summary" not in " ".join(between)
    for body in model.requests:
        assert pairs(body["messages"])
    for summary in summaries:
        assert "[>] measure throughput of the lexer" in summary["messages"][0]["content"]
        assert "make the parser fast" in summary["messages"][0]["content"]


@pytest.mark.case("agent-26")
async def test_where_the_summary_request_never_fits_the_rest_is_pruned(big: Path, script: Any) -> None:
    refusal = {"status": 400, "error": {"error": {"message": "prompt is too long", "code": "x"}}}
    steps = row([{"calls": [call("todo", items=TODOS)]}, *map(reading, range(1, 5)), "done"])
    model = script(summarising(steps, lambda body: refusal), window=WINDOW)
    async with opened(big, model) as session:
        events = await turn(session)
        assert await exact(session, model)
    assert ends(events)[0] == "end_turn"
    (summary,) = data(events, "summary")
    assert summary["fallback"] and summary["pruned"] and summary.get("generation") is None
    assert summary["kept"] >= 2
    assert pairs(summary["messages"])
    assert sum(asked_to_summarise(body) for body in model.requests) == 4


async def test_without_progress_a_turn_ends_with_a_sentence(root: Path, script: Any) -> None:
    refusal = {"status": 400, "error": {"error": {"message": "prompt is too long"}}}
    model = script([refusal])
    async with opened(root, model) as session:
        events = await turn(session, "hello")
    reason, message = ends(events)
    assert reason == "overlong" and "nothing succeeded since" in message
    assert len(data(events, "summary")) == 1


async def test_none_are_made_where_none_are_allowed(big: Path, script: Any) -> None:
    model = script(summarising(row(list(map(reading, range(1, 99)))), lambda body: GOOD), window=WINDOW)
    async with opened(big, model, max_summaries=0) as session:
        events = await turn(session)
    assert not data(events, "summary") and ends(events)[0] == "overlong"


async def test_the_next_turn_goes_on_from_the_last_segment(big: Path, script: Any) -> None:
    steps = row([{"calls": [call("todo", items=TODOS)]}, *map(reading, range(1, 7)), "done", "again done"])
    model = script(summarising(steps, lambda body: GOOD), window=WINDOW)
    async with opened(big, model) as session:
        await turn(session, "first")
        log = session.log
    async with opened(big, model, log=log) as session:
        assert session.state.segment == 2
        await turn(session, "second task")
    last = model.requests[-1]["messages"]
    assert GOOD in str(last[1]["content"]) and last[-1] == {"role": "user", "content": "second task"}
    assert pairs(last)


async def test_a_prompt_that_no_step_has_taken_up_stays_whole(big: Path, script: Any) -> None:
    words = "remember the number 4711. " * 40
    steps = row([*map(reading, range(1, 5)), "done", "second done"])
    model = script(summarising(steps, lambda body: GOOD), window=WINDOW)
    async with opened(big, model, summarize_at=0.95) as session:
        await turn(session, "first")
        session.summarize_at = 0.5
        events = await turn(session, words)
    assert data(events, "summary")[0]["kept"] == 1
    after = model.requests[-1]["messages"]
    assert after[-1] == {"role": "user", "content": words}
    assert after[1]["content"].count("4711") == 0 and "first" in after[1]["content"]


async def test_steering_while_it_is_summarised_waits_for_the_step_after(big: Path, script: Any) -> None:
    steps = row([*map(reading, range(1, 7)), "done"])
    model = script(summarising(steps, lambda body: {"text": GOOD, "first_ms": 300}), window=WINDOW)
    async with opened(big, model) as session:
        running = asyncio.create_task(turn(session))
        await asyncio.to_thread(model.wait, lambda m: any(map(asked_to_summarise, m.requests)))
        await session.steer(Prompt(message_id="s", text="and be quick"))
        events = await running
    at = next(i for i, body in enumerate(model.requests) if asked_to_summarise(body))
    assert model.requests[at + 1]["messages"][-1] == {"role": "user", "content": "and be quick"}
    assert opening(model.requests[at + 1]).count("and be quick") == 0
    assert ends(events)[0] == "end_turn"


async def test_secrets_of_a_summary_are_never_stored(big: Path, script: Any) -> None:
    key = "sk-proj-" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3z"
    (big / ".env").write_text(f"OPENAI_API_KEY={key}\n")
    steps = row([{"calls": [call("read", path=".env")]}, *map(reading, range(1, 7)), "done"])
    model = script(summarising(steps, lambda body: f"{GOOD} The key is {key}."), window=WINDOW)
    async with opened(big, model) as session:
        events = await turn(session)
        assert data(events, "summary")
        assert key not in orjson.dumps([event.data for event in events_of(session)]).decode()
    assert key not in orjson.dumps(model.requests).decode()
