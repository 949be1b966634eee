"""Any conversation made to fit: calls and results stay pairs, whatever the sizes."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.events import Event
from agent.state import State, fold
from agent.summary.pruning import fitted, newest, shortened_unit, units
from agent.summary.segment import opened, pruned
from agent.summary.size import fixed_tokens, next_tokens, size_of

Message = dict[str, Any]


def asks(*ids: str, text: str = "") -> Message:
    calls = [{"id": id, "type": "function", "function": {"name": "read", "arguments": "{}"}} for id in ids]
    return {"role": "assistant", "content": text or None, "tool_calls": calls}


def result(id: str, text: str = "x") -> Message:
    return {"role": "tool", "tool_call_id": id, "content": text}


def paired(messages: list[Message]) -> bool:
    waiting: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return False
            waiting.discard(message["tool_call_id"])
        else:
            if waiting:
                return False
            waiting = {call["id"] for call in message.get("tool_calls") or ()}
    return not waiting


@pytest.mark.case("agent-5")
def test_halves_of_a_pair_are_left_out() -> None:
    messages = [
        result("0"),
        {"role": "user", "content": "u"},
        asks("1", "2"),
        result("1"),
        asks("3", text="t"),
    ]
    assert units(messages) == [[{"role": "user", "content": "u"}], [{"role": "assistant", "content": "t"}]]
    messages = [asks("1", "2"), result("2"), result("1"), result("9")]
    assert units(messages) == [messages[:3]]


def test_the_newest_step_is_shortened_rather_than_lost() -> None:
    messages = [asks("1"), result("1", "a" * 5000), asks("2"), result("2", "b" * 50_000)]
    kept = newest(messages, 2000)
    assert paired(kept) and size_of(kept) <= 2000
    assert kept[1]["content"].startswith("bbb") and "characters left out]" in kept[1]["content"]
    assert shortened_unit(messages[2:], 60) is None
    long = asks("3")
    long["tool_calls"][0]["function"]["arguments"] = '{"content":"' + "c" * 9000 + '"}'
    assert paired(newest([long, result("3")], 1000))


def steps() -> st.SearchStrategy[list[list[tuple[str, dict[str, Any]]]]]:
    """Turns as events: prompts, generations with calls, results (some missing), answers."""
    text = st.text(max_size=3) | st.integers(0, 6000).map(lambda n: "ä\n" * (n // 2))
    calls = st.lists(st.tuples(text, st.booleans()), max_size=4)
    step = st.tuples(text, calls)
    return st.lists(st.tuples(text, st.lists(step, max_size=5)), min_size=1, max_size=4).map(_events)


def _events(turns: Any) -> Any:
    events: list[tuple[str, dict[str, Any]]] = [
        ("turn.started", {"model": "m", "mode": "ask", "profile": "full", "system": "sys", "tools": []})
    ]
    number = 0
    for words, made in turns:
        events.append(("prompt", {"message_id": f"p{number}", "text": words}))
        for text, calls in made:
            ids = [f"c{number}-{i}" for i in range(len(calls))]
            number += 1
            events.append(
                (
                    "generation",
                    {
                        "text": text,
                        "calls": [{"id": id, "name": "read", "arguments": "{}"} for id in ids],
                        "prompt": {"node": "n", "messages": 1, "bytes": 400, "shared": 0},
                        "usage": {"input": 100, "output": 10},
                    },
                )
            )
            for id, (output, ended) in zip(ids, calls, strict=True):
                if ended:
                    events.append(("tool.result", {"call_id": id, "name": "read", "text": output}))
    return events


def state_of(events: list[tuple[str, dict[str, Any]]]) -> State:
    return fold(
        Event(session_id="S", seq=seq, ts=1, turn=1, step=1, type=type, data=data)
        for seq, (type, data) in enumerate(events, 1)
    )


@settings(max_examples=150, deadline=None)
@given(events=steps(), room=st.integers(0, 20_000))
def test_any_log_makes_a_prompt_that_pairs_and_fits(
    events: list[tuple[str, dict[str, Any]]], room: int
) -> None:
    state = state_of(events)
    for messages in (fitted(state.messages, room), newest(state.messages, room)):
        assert paired([m for unit in units(messages) for m in unit])
    assert paired(newest(state.messages, room)) and size_of(newest(state.messages, room)) <= max(room, 0)
    if not state.pending_calls:
        assert size_of(fitted(state.messages, room)) <= max(room, 700)
    window = 1000 + room
    limit = int(window * 0.8)
    for segment in (opened(state, "summary", window), pruned(state, window, limit)):
        state_after = state_of(events)
        event = ("summary", {"messages": segment.messages, "segment": 2, "number": 1})
        state_after.apply(Event(session_id="S", seq=999, ts=1, turn=1, step=1, type=event[0], data=event[1]))
        assert paired(state_after.messages) and state_after.segment == 2
        whole = state.asking if state.asking is not None else ""
        assert next_tokens(state_after) == fixed_tokens(state) + segment.tokens
        # It fits, but for the last words of the user, which are never cut: then the estimate says so.
        assert next_tokens(state_after) <= limit + len(whole.encode()) or limit < 700
        if whole:
            assert state_after.messages[-1]["content"] == whole
