"""The client of OpenAI-compatible endpoints, against a real HTTP endpoint with a scripted model."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from typing import Any

import pytest

from agent.models.chat_completions import ChatCompletions
from agent.models.client import Chunk, Completion, Delta, ModelError, Price, Request, Retry, Sampling
from agent.models.settings import ModelSettings
from tests.support.scripted_model import ScriptedModel, Turn

EVENT = 'data: {"choices":[{"delta":{"content":"TEXT"}}]}\n\n'
READ = {"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}


def request(text: str = "hello", sampling: Sampling | None = None, tools: bool = True) -> Request:
    messages = [{"role": "system", "content": "You help."}, {"role": "user", "content": text}]
    return Request("s", messages, [READ] if tools else [], sampling or Sampling())


@contextlib.asynccontextmanager
async def client(
    model: ScriptedModel, environ: Mapping[str, str] | None = None, *, name: str = "scripted", **settings: Any
) -> AsyncIterator[ChatCompletions]:
    settings = {"model": name, "base_url": model.base_url, **settings}
    subject = ChatCompletions("test", ModelSettings.model_validate(settings), environ or {})
    try:
        yield subject
    finally:
        await subject.close()


async def sample(subject: ChatCompletions, asked: Request | None = None) -> list[Chunk]:
    async with aclosing(subject.sample(asked or request())) as stream:
        return [chunk async for chunk in stream]


async def chunks(model: ScriptedModel, asked: Request | None = None, **settings: Any) -> list[Chunk]:
    async with client(model, **settings) as subject:
        return await sample(subject, asked)


async def completion(model: ScriptedModel, asked: Request | None = None, **settings: Any) -> Completion:
    last = (await chunks(model, asked, **settings))[-1]
    assert isinstance(last, Completion)
    return last


@pytest.fixture
def script() -> Iterator[Any]:
    with contextlib.ExitStack() as stack:
        yield lambda turns, **options: stack.enter_context(ScriptedModel(turns, **options))


async def test_streams_thought_and_text_then_one_completion(script: Any) -> None:
    model = script([Turn(thought="let me see", text="It is done, really.", delay_ms=2)])
    found = await chunks(model)
    assert [type(chunk) for chunk in found[:-1]] == [Delta] * (len(found) - 1)
    thought = "".join(c.text for c in found if isinstance(c, Delta) and c.kind == "thought")
    text = "".join(c.text for c in found if isinstance(c, Delta) and c.kind == "text")
    assert (thought, text) == ("let me see", "It is done, really.")
    last = found[-1]
    assert isinstance(last, Completion)
    assert (last.thought, last.text, last.finish, last.calls) == (thought, text, "stop", [])
    assert last.request_id == "gen-0"


async def test_deltas_arrive_while_the_model_still_writes(script: Any) -> None:
    model = script([Turn(text="one two three four", delay_ms=30)])
    times = []
    async with client(model) as subject, aclosing(subject.sample(request())) as stream:
        async for _ in stream:
            times.append(time.monotonic())
    assert times[-1] - times[0] > 0.06


async def test_parallel_calls_are_put_together_by_index(script: Any) -> None:
    calls = [{"name": "read", "arguments": {"path": f"{i}" * 300}} for i in range(40)]
    done = await completion(script([Turn(calls=calls)]))
    assert done.finish == "tool_calls"
    assert [json.loads(call.arguments) for call in done.calls] == [call["arguments"] for call in calls]
    assert [call.id for call in done.calls] == [f"call_0_{i}" for i in range(40)]


async def test_malformed_arguments_stay_as_the_model_wrote_them(script: Any) -> None:
    done = await completion(script([Turn(calls=[{"name": "read", "raw": '{"path": "a'}])]))
    assert done.calls[0].arguments == '{"path": "a'


async def test_five_megabytes_of_arguments_arrive_whole(script: Any) -> None:
    done = await completion(script([Turn(calls=[{"name": "w", "arguments": {"content": "x" * 5 * 2**20}}])]))
    assert len(done.calls[0].arguments) == 5 * 2**20 + len('{"content":""}')


async def test_usage_has_cached_and_reasoning_tokens(script: Any) -> None:
    model = script(["first", Turn(text="second", thought="hmm hmm")])
    async with client(model, price={"input": 2.0, "cached": 0.5, "output": 10.0}) as subject:
        first, second = (await sample(subject))[-1], (await sample(subject))[-1]
    assert isinstance(first, Completion) and isinstance(second, Completion)
    assert first.usage.cached == 0
    assert second.usage.cached == second.usage.input
    assert second.usage.reasoning == 2
    assert isinstance(subject.price, Price)
    cost = subject.price.cost(second.usage)
    assert cost == pytest.approx(((second.usage.cached or 0) * 0.5 + (second.usage.output or 0) * 10) / 1e6)


async def test_consecutive_requests_share_their_bytes_as_a_prefix(script: Any) -> None:
    asked = request("x" * 5000)
    longer = [*asked.messages, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}]
    model = script(["ok"])
    async with client(model) as subject:
        await sample(subject, asked)
        await sample(subject, Request("s", longer, asked.tools))
    first, second = (json.dumps(body) for body in model.requests)
    shared = next(i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    assert shared >= len(first) - 2


async def test_sampling_and_settings_reach_the_endpoint(script: Any) -> None:
    model = script(["ok"])
    sampling = Sampling(temperature=0.3, top_p=0.9, max_tokens=50, seed=7, stop=("END",))
    await chunks(model, request(sampling=sampling), temperature=1.0, extra={"reasoning_effort": "low"})
    body = model.requests[0]
    assert body["temperature"] == 0.3
    assert (body["top_p"], body["max_tokens"], body["seed"], body["stop"]) == (0.9, 50, 7, ["END"])
    assert body["reasoning_effort"] == "low"
    assert "return_token_ids" not in body and "logprobs" not in body


async def test_a_completion_says_which_parameters_were_sent(script: Any) -> None:
    asked = request(sampling=Sampling(top_p=0.9))
    done = await completion(script(["ok"]), asked, temperature=1.0, max_output_tokens=9, extra={"top_k": 5})
    assert done.sampling == {"temperature": 1.0, "top_p": 0.9, "max_tokens": 9, "top_k": 5}


async def test_the_limit_of_the_answer_leaves_room_for_the_prompt(script: Any) -> None:
    model = script(["ok"])
    await chunks(model, request("x" * 7000), context_window=4000, max_output_tokens=4000)
    assert 256 <= model.requests[0]["max_tokens"] < 2000


@pytest.mark.parametrize("settings", [{"provider": "vllm"}, {"token_ids": True}])
async def test_token_ids_and_log_probs_are_kept_where_asked_for(script: Any, settings: Any) -> None:
    done = await completion(script(["exactly these tokens"]), **settings)
    assert done.tokens is not None and done.tokens.completion is not None
    assert done.tokens.logprobs is not None and done.prompt_ids
    assert len(done.tokens.logprobs) == len(done.tokens.completion) > 3
    assert done.tokens.prompt_length == len(done.prompt_ids)
    assert all(value < 0 for value in done.tokens.logprobs)


async def test_token_ids_without_their_log_probs_are_kept_without_them(script: Any) -> None:
    chunk = {"choices": [{"delta": {"content": "ab"}, "token_ids": [1, 2], "logprobs": None}]}
    end = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    done = await completion(script([Turn(chunks=[chunk, end])]), token_ids=True)
    assert done.tokens is not None
    assert (done.tokens.completion, done.tokens.logprobs) == ([1, 2], None)


@pytest.mark.parametrize(
    ("said", "meant"),
    [("length", "length"), ("MAX_TOKENS", "length"), ("end_turn", "stop"), ("eos", "stop"), ("odd", "odd")],
)
async def test_finish_reasons(script: Any, said: str, meant: str) -> None:
    assert (await completion(script([Turn(text="x", finish=said)]))).finish == meant


async def test_a_refusal_is_text_with_a_finish_of_its_own(script: Any) -> None:
    done = await completion(script([Turn(refusal="I will not.")]))
    assert (done.text, done.finish) == ("I will not.", "refusal")


async def test_stop_with_calls_means_tool_calls_and_the_reverse(script: Any) -> None:
    call = {"name": "read", "arguments": {}}
    assert (await completion(script([Turn(calls=[call], finish="stop")]))).finish == "tool_calls"
    assert (await completion(script([Turn(text="x", finish="tool_calls")]))).finish == "stop"


async def test_an_endpoint_that_does_not_stream_is_understood(script: Any) -> None:
    whole = {
        "id": "w",
        "choices": [
            {
                "message": {
                    "content": "all at once",
                    "tool_calls": [{"id": "a", "function": {"name": "read", "arguments": "{}"}}],
                },
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2},
    }
    model = script([Turn(status=201, error=whole)])
    found = await chunks(model)
    assert found[0] == Delta("text", "all at once")
    assert isinstance(found[-1], Completion)
    assert found[-1].calls[0].name == "read" and found[-1].usage.input == 5


async def test_crlf_missing_done_and_missing_space_are_understood(script: Any) -> None:
    assert (await completion(script([Turn(text="a b", crlf=True)]))).text == "a b"
    assert (await completion(script([Turn(text="a b", done=False)]))).text == "a b"
    event = 'data:{"choices":[{"delta":{"content":"first "}}]}\n'
    assert (
        await completion(script([Turn(text="then", garbage=event, garbage_after=1)]))
    ).text == "first then"


async def test_a_field_that_the_endpoint_refuses_is_left_out_from_then_on(script: Any) -> None:
    def strict(body: dict[str, Any]) -> Turn:
        for name in ("stream_options", "seed"):
            if name in body:
                detail = [
                    {
                        "type": "extra_forbidden",
                        "loc": ["body", name],
                        "msg": "Extra inputs are not permitted",
                    }
                ]
                return Turn(status=422, error={"detail": detail})
        return Turn(text="fine")

    model = script(strict)
    async with client(model) as subject:
        for _ in range(2):
            found = await sample(subject, request(sampling=Sampling(seed=1)))
            assert [type(chunk) for chunk in found] == [Delta, Completion]
    assert len(model.requests) == 4
    assert "seed" not in model.requests[-1]


async def test_max_tokens_changes_its_name_where_the_endpoint_wants_the_other(script: Any) -> None:
    def modern(body: dict[str, Any]) -> Turn:
        if "max_tokens" in body:
            message = (
                "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
            )
            error = {"message": message, "param": "max_tokens", "code": "unsupported_parameter"}
            return Turn(status=400, error={"error": error})
        return Turn(text="fine")

    model = script(modern)
    await chunks(model, max_output_tokens=99)
    assert model.requests[-1]["max_completion_tokens"] == 99


async def test_cancelling_the_consumer_closes_the_stream_at_once(script: Any) -> None:
    model = script([Turn(text="one two three", stall_after=2)])
    async with client(model) as subject:
        task = asyncio.create_task(sample(subject))
        await asyncio.to_thread(model.wait, lambda m: m.streaming == 1)
        begun = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(model.wait, lambda m: m.cut == 1 and m.streaming == 0)
        assert time.monotonic() - begun < 1


async def test_leaving_the_loop_early_closes_the_stream(script: Any) -> None:
    model = script([Turn(text="word " * 1000, delay_ms=5)])
    async with client(model) as subject:
        async with aclosing(subject.sample(request())) as stream:
            async for _ in stream:
                break
        await asyncio.to_thread(model.wait, lambda m: m.cut == 1)
        assert (model.cut, model.streaming) == (1, 0)


async def test_a_connection_is_used_again(script: Any) -> None:
    model = script(["one two"])
    async with client(model) as subject:
        for _ in range(3):
            await sample(subject)
    assert model.connections == 1


async def test_sixty_four_samples_at_once(script: Any) -> None:
    sessions = {f"<{i}>": [f"answer {i}"] for i in range(64)}
    model = script([], sessions=sessions)
    async with client(model) as subject:
        answers = await asyncio.gather(*(sample(subject, request(f"<{i}>")) for i in range(64)))
    for i, found in enumerate(answers):
        assert isinstance(found[-1], Completion) and found[-1].text == f"answer {i}"
    assert model.errors == []


async def test_the_window_comes_from_the_settings_then_the_endpoint(script: Any) -> None:
    model = script(["ok"], window=8000)
    async with client(model) as asked, client(model, context_window=32_000) as fixed:
        await asked.warm()
        await fixed.warm()
        assert (asked.context_window, asked.profile) == (8000, "compact")
        assert (fixed.context_window, fixed.profile) == (32_000, "full")


async def test_the_window_of_a_running_ollama_model(script: Any) -> None:
    loaded = {"models": [{"name": "qwen3:8b", "model": "qwen3:8b", "context_length": 40_960}]}
    model = script(["ok"], pages={"/api/ps": {"models": []}})
    async with client(model, provider="ollama", name="qwen3:8b") as subject:
        await subject.warm()
        assert subject.context_window == 4096
        model.pages["/api/ps"] = loaded
        await sample(subject)
        assert subject.context_window == 40_960


async def test_a_model_without_a_key_sends_none(script: Any) -> None:
    model = script(["ok"])
    await chunks(model, environ={"OPENAI_ADMIN_KEY": "sk-admin"})
    assert "authorization" not in model.headers[0]


async def test_proxy_variables_do_not_touch_loopback(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert (await completion(script(["direct"]))).text == "direct"


async def test_lone_surrogates_in_a_prompt_do_not_stop_it(script: Any) -> None:
    model = script(["ok"])
    await chunks(model, request("bad \ud800 text"))
    assert model.requests[0]["messages"][1]["content"] == "bad ? text"


async def test_half_a_character_in_each_of_two_chunks(script: Any) -> None:
    halves = "".join(EVENT.replace("TEXT", half) for half in ("\\ud83d", "\\ude00!"))
    done = await completion(script([Turn(text=" end", garbage=halves, garbage_after=1)]))
    assert done.text == "😀! end"


async def test_retries_are_announced_and_counted(script: Any) -> None:
    model = script(
        [
            Turn(status=503, headers={"retry-after-ms": "20"}),
            Turn(status=500, headers={"retry-after": "0"}),
            "ok",
        ]
    )
    found = await chunks(model)
    assert [type(chunk) for chunk in found] == [Retry, Retry, Delta, Completion]
    first = found[0]
    assert isinstance(first, Retry) and (first.attempt, round(first.wait_s, 2)) == (1, 0.02)
    assert "503" in first.message and "scripted error" in first.message
    assert isinstance(found[-1], Completion) and found[-1].retries == 2


async def test_tries_are_bounded(script: Any) -> None:
    model = script([Turn(status=429, headers={"retry-after-ms": "1"})])
    with pytest.raises(ModelError, match=r"slow down \(429\).*Tried 3 times") as caught:
        await chunks(model, tries=3)
    assert len(model.requests) == 3
    assert not caught.value.retryable


async def test_a_stream_that_breaks_before_its_first_token_is_made_again(script: Any) -> None:
    model = script([Turn(text="lost", die_after=1), "whole"])
    found = await chunks(model)
    assert [type(chunk) for chunk in found] == [Retry, Delta, Completion]


async def test_a_key_is_in_no_representation(script: Any) -> None:
    async with client(script(["ok"]), {"MY_KEY": "sk-secret-123456"}, api_key_env="MY_KEY") as subject:
        assert subject.endpoint.key == "sk-secret-123456"
        assert "sk-secret" not in f"{subject!r} {subject.settings!r} {subject.endpoint!r}"
