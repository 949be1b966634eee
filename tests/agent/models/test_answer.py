"""Answers in the forms that endpoints give them, event by event."""

from typing import Any

import orjson
import pytest

from agent.models import answer as answer_module
from agent.models.answer import Answer, ReportedError
from agent.models.client import Completion, Delta, ModelError


def fold(*chunks: Any) -> tuple[list[Delta], Completion]:
    answer = Answer()
    deltas = [delta for chunk in chunks for delta in answer.feed(orjson.dumps(chunk))]
    return deltas, answer.completion(0)


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "thinking"])
def test_thought_by_each_of_its_names(field: str) -> None:
    deltas, done = fold(delta(**{field: "hm"}), delta(content="yes"), delta("stop"))
    assert deltas == [Delta("thought", "hm"), Delta("text", "yes")]
    assert (done.thought, done.text) == ("hm", "yes")


def test_thought_sent_under_two_names_counts_once() -> None:
    assert fold(delta(reasoning_content="hm", reasoning="hm"))[1].thought == "hm"


def test_content_in_parts() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "yes"},
        "!",
        {"type": "image"},
        None,
    ]
    done = fold(delta(content=parts))[1]
    assert (done.thought, done.text) == ("hm", "yes!")


def test_the_call_of_the_first_protocol() -> None:
    first = delta(function_call={"name": "read", "arguments": ""})
    _, done = fold(first, delta("function_call", function_call={"arguments": "{}"}))
    assert (done.finish, done.calls[0].name, done.calls[0].arguments) == ("tool_calls", "read", "{}")


USAGES = [
    {"usage": {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}},
    {"usage": {"prompt_tokens": 9, "completion_tokens": 3, "prompt_cache_hit_tokens": 4}},
    {"usage": {"input_tokens": 9, "output_tokens": 3, "cache_read_input_tokens": 4}},
    {
        "usage": {
            "prompt_tokens": 9,
            "completion_tokens": 3,
            "cached_tokens": 4,
            "prompt_tokens_details": None,
        }
    },
    {"x_groq": {"usage": {"prompt_tokens": 9, "completion_tokens": 3, "cached_tokens": 4}}},
    {"choices": [{"delta": {}, "usage": {"prompt_tokens": 9, "completion_tokens": 3, "cached_tokens": 4}}]},
]


@pytest.mark.parametrize("chunk", USAGES)
def test_usage_wherever_it_stands(chunk: dict[str, Any]) -> None:
    usage = fold(delta(content="x"), chunk)[1].usage
    assert (usage.input, usage.cached, usage.output) == (9, 4, 3)


def test_usage_that_is_not_reported_is_not_made_up() -> None:
    usage = fold(delta(content="x"), {"usage": None}, {"usage": {"prompt_tokens": "many"}})[1].usage
    assert (usage.input, usage.cached, usage.output, usage.reasoning) == (None, None, None, None)


def test_running_totals_count_once() -> None:
    totals = [
        {**delta(content="x"), "usage": {"prompt_tokens": 9, "completion_tokens": n}} for n in (1, 2, 3)
    ]
    assert fold(*totals)[1].usage.output == 3


@pytest.mark.parametrize(
    "data",
    [b"nonsense", b"[]", b"3", b'{"choices": 3}', b'{"choices": [3]}', b"\xff\xfe", b"[" * 100_000],
)
def test_what_is_no_chunk(data: bytes) -> None:
    answer = Answer()
    with pytest.raises(ModelError, match="The endpoint sent a chunk that") as caught:
        answer.feed(data)
    assert len(caught.value.message) < 500


@pytest.mark.parametrize(
    "chunk",
    [
        {},
        {"choices": []},
        {"choices": None},
        {"choices": [{}]},
        {"choices": [{"delta": None}]},
        delta(content=5),
    ],
)
def test_chunks_that_say_nothing(chunk: dict[str, Any]) -> None:
    assert fold(chunk)[0] == []


def test_bytes_that_are_no_utf8_inside_a_chunk() -> None:
    answer = Answer()
    assert answer.feed(b'{"choices":[{"delta":{"content":"a\xffb"}}]}') == [Delta("text", "a\ufffdb")]


def test_a_lone_surrogate_never_gets_through() -> None:
    answer = Answer()
    answer.feed(b'{"choices":[{"delta":{"content":"a\\udc00b"}}]}')
    answer.feed(b'{"choices":[{"delta":{"content":"c\\ud83d"}}]}')
    answer.feed(b'{"choices":[{"delta":{"content":"d"}}]}')
    assert answer.completion(0).text == "a\ufffdbc\ufffdd"


@pytest.mark.parametrize("error", [{"message": "no", "code": 500}, "no", {"detail": "no"}])
def test_an_error_inside_the_stream(error: Any) -> None:
    with pytest.raises(ReportedError):
        fold(delta(content="x"), {"error": error})


def test_an_answer_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_module, "MAX_ANSWER", 2**20)
    with pytest.raises(ModelError, match="passed 1 MiB"):
        fold(*[delta(content="x" * 65_536)] * 20)
    calls = [{"id": "a", "function": {"name": "n" * 100}}] * 100
    with pytest.raises(ModelError, match="passed 1 MiB"):
        fold(*[delta(tool_calls=calls)] * 120)


def test_log_probs_that_do_not_match_their_tokens_are_dropped() -> None:
    chunk = {"choices": [{"delta": {}, "token_ids": [1, 2], "logprobs": {"content": [{"logprob": -1.0}]}}]}
    tokens = fold(chunk)[1].tokens
    assert tokens is not None and (tokens.completion, tokens.logprobs) == ([1, 2], None)
