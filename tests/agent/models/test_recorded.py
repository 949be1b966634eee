"""A logged session played again."""

from collections.abc import Sequence
from typing import Any

import pytest

from agent.events import Call, Event, Generation, PromptRef, Usage
from agent.models.client import Completion, Delta, ModelError, Request
from agent.models.recorded import RecordedModel


def event(seq: int, **fields: Any) -> Event:
    generation = Generation(
        id=f"g{seq}",
        message_id=f"m{seq}",
        model="openai:gpt",
        prompt=PromptRef(node="n", messages=1, bytes=10, shared=0),
        sampling={},
        started=1,
        ended=2,
        **{"text": "", "finish": "stop", "usage": Usage(input=10, output=3), **fields},
    )
    data = generation.model_dump(exclude_none=True)
    return Event(session_id="old", seq=seq, ts=1, turn=1, step=seq, type="generation", data=data)


RECORDING = [
    event(
        2,
        text="I will read it. " * 10,
        thought="hm",
        calls=[Call(id="c1", name="read", arguments='{"path":')],
    ),
    Event(session_id="old", seq=3, ts=1, turn=1, step=1, type="text", data={"text": "not a generation"}),
    event(4, text="Done.", finish="length"),
]


def request(answers: int = 0, session: str = "s") -> Request:
    messages = [{"role": "user", "content": "go"}, *[{"role": "assistant", "content": "x"}] * answers]
    return Request(session, messages, [])


async def play(model: RecordedModel, asked: Request) -> tuple[str, str, Completion]:
    text, thought, last = "", "", None
    async for chunk in model.sample(asked):
        match chunk:
            case Delta(kind="text"):
                text += chunk.text
            case Delta():
                thought += chunk.text
            case Completion():
                last = chunk
    assert last is not None
    return text, thought, last


async def test_generations_come_in_order_with_their_calls() -> None:
    model = RecordedModel("old", RECORDING)
    text, thought, first = await play(model, request())
    assert text == first.text == "I will read it. " * 10
    assert thought == first.thought == "hm"
    assert [(call.name, call.arguments) for call in first.calls] == [("read", '{"path":')]
    assert first.usage == Usage(input=10, output=3)
    assert (await play(model, request(1)))[2].finish == "length"


async def test_a_different_context_plays_on() -> None:
    model = RecordedModel("old", RECORDING)
    await play(model, request())
    odd = Request("s", [{"role": "user", "content": "something else"}], [{"type": "function"}])
    assert (await play(model, odd))[0] == "Done."


async def test_past_the_end_it_says_so() -> None:
    model = RecordedModel("old", RECORDING)
    await play(model, request())
    await play(model, request(1))
    with pytest.raises(ModelError, match="session old is over: it has 2 generations, and number 3"):
        await play(model, request(2))


async def test_a_resumed_session_goes_on_where_it_was() -> None:
    assert (await play(RecordedModel("old", RECORDING), request(1)))[0] == "Done."


async def test_a_resumed_session_goes_on_behind_its_summaries() -> None:
    recording = [
        event(2, text="one"),
        event(3, text="first summary", purpose="summary"),
        event(4, text="two"),
        event(5, text="second summary", purpose="summary"),
        event(6, text="three"),
    ]
    after_summary = [{"role": "user", "content": "the summary; go on"}]
    for purpose, made, expected in (
        ("step", 0, "one"),
        ("step", 1, "two"),
        ("step", 2, "three"),
        ("summary", 0, "first summary"),
        ("summary", 1, "second summary"),
    ):
        asked = Request("s", after_summary, [], purpose=purpose, made=made)  # pyright: ignore[reportArgumentType]
        text, _, _ = await play(RecordedModel("old", recording), asked)
        assert text == expected


async def test_two_sessions_play_the_same_recording_apart() -> None:
    model = RecordedModel("old", RECORDING)
    await play(model, request(session="a"))
    assert (await play(model, request(session="b")))[2].calls
    assert (await play(model, request(1, session="a")))[0] == "Done."


async def test_events_are_loaded_when_first_needed() -> None:
    asked: list[str] = []

    async def load(session: str) -> Sequence[Event]:
        asked.append(session)
        return RECORDING

    model = RecordedModel("old", load)
    assert (model.name, asked) == ("recorded:old", [])
    await play(model, request())
    await play(model, request(1))
    assert asked == ["old"]


async def test_sessions_that_are_not_there_or_empty() -> None:
    async def missing(session: str) -> Sequence[Event]:
        raise KeyError(session)

    with pytest.raises(ModelError, match="no session old to replay"):
        await play(RecordedModel("old", missing), request())
    with pytest.raises(ModelError, match="no generations"):
        await play(RecordedModel("old", []), request())
