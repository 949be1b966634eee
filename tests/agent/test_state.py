"""The fold: what the log says is what the session is."""

import orjson
import pytest

from agent.events import Event
from agent.state import ARGUMENT_LIMIT, State, context_arguments, fold


def events(*parts: tuple[str, dict]) -> list[Event]:
    return [
        Event(session_id="S", seq=i, ts=i, turn=1, step=1, type=type, data=data)
        for i, (type, data) in enumerate(parts, 1)
    ]


CREATED = (
    "session.created",
    {"workspace": "/w", "user_id": "local", "model": "openai:m", "mode": "ask", "profile": "full"},
)


def prompt(text: str, id: str = "p", **more: object) -> tuple[str, dict]:
    return "prompt", {"message_id": id, "text": text, **more}


def generation(text: str = "", calls: list[dict] | None = None, **more: object) -> tuple[str, dict]:
    return "generation", {
        "id": "g",
        "text": text,
        "calls": calls or [],
        "prompt": {"node": "n", "messages": 1, "bytes": 1, "shared": 0},
        "usage": {"input": 10, "output": 5},
        **more,
    }


def call(id: str, arguments: str = "{}") -> dict:
    return {"id": id, "name": "read", "arguments": arguments}


def test_a_conversation_becomes_messages_in_log_order() -> None:
    state = fold(
        events(
            CREATED,
            prompt("fix it"),
            generation("looking", [call("a"), call("b")]),
            ("tool.result", {"call_id": "b", "text": "B", "seen": {"f.py": "h1"}}),
            ("tool.result", {"call_id": "a", "text": "A"}),
            generation("done"),
            ("turn.ended", {"reason": "end_turn"}),
        )
    )
    roles = [message["role"] for message in state.messages]
    assert roles == ["user", "assistant", "tool", "tool", "assistant"]
    assert [m["tool_call_id"] for m in state.messages if m["role"] == "tool"] == ["b", "a"]
    assert state.pending_calls == {}
    assert state.seen == {"f.py": "h1"}
    assert (state.usage.input, state.usage.output) == (20, 10)
    assert not state.running
    assert state.title == "fix it"


def test_a_steering_message_joins_the_generation_that_saw_it() -> None:
    before = events(
        CREATED,
        prompt("go"),
        generation("one", [call("a")]),
        ("steered", {"message_id": "s1", "text": "also docs"}),
        ("tool.result", {"call_id": "a", "text": "A"}),
    )
    assert [item.text for item in fold(before).steered] == ["also docs"]
    late = ("steered", {"message_id": "s2", "text": "and tests"})
    state = fold([*before, *_after(before, late, generation("two", steered=[4]))])
    assert [m["content"] for m in state.messages] == ["go", "one", "A", "also docs", "two"]
    assert [item.text for item in state.steered] == ["and tests"]


def _after(before: list[Event], *parts: tuple[str, dict]) -> list[Event]:
    return [event.model_copy(update={"seq": len(before) + event.seq}) for event in events(*parts)]


def test_a_queued_prompt_leaves_the_queue_when_its_turn_begins() -> None:
    queued = events(CREATED, prompt("one"), ("queued", {"message_id": "q", "text": "two"}))
    assert [item.text for item in fold(queued).queued] == ["two"]
    state = fold([*queued, *_after(queued, prompt("two", "q", queued_seq=3))])
    assert state.queued == []
    assert state.accepted["q"] == (3, "queue")


def test_text_of_a_broken_off_turn_stays_in_the_conversation() -> None:
    state = fold(
        events(
            CREATED,
            prompt("go"),
            ("text", {"messageId": "m", "offset": 0, "text": "I was ab"}),
            ("text", {"messageId": "m", "offset": 8, "text": "out to"}),
            ("turn.ended", {"reason": "cancelled"}),
        )
    )
    assert state.messages[-1] == {"role": "assistant", "content": "I was about to"}


def test_an_abandoned_try_leaves_no_message() -> None:
    state = fold(
        events(
            CREATED,
            prompt("go"),
            ("text", {"messageId": "m1", "offset": 0, "text": "half"}),
            ("text", {"messageId": "m2", "offset": 0, "text": "whole"}),
            generation("whole"),
        )
    )
    assert [m["content"] for m in state.messages] == ["go", "whole"]


@pytest.mark.case("agent-5")
@pytest.mark.parametrize("raw", ["{", '{"a": 1', "[]", "3", "null", "x" * (ARGUMENT_LIMIT + 1), "\ud800"])
def test_arguments_in_the_context_are_always_a_json_object(raw: str) -> None:
    text = context_arguments(raw.encode("utf-8", "replace").decode())
    assert isinstance(orjson.loads(text), dict)
    assert len(text) <= ARGUMENT_LIMIT


def test_unknown_types_are_skipped() -> None:
    state = fold(events(CREATED, ("something.new", {"x": 1})))
    assert state.last_seq == 2


def test_an_empty_log_is_an_empty_state() -> None:
    assert fold([]) == State()
