"""What a person reads when an endpoint fails, and what the loop may do about it: over real HTTP."""

import contextlib
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

import pytest

from agent.models.chat_completions import ChatCompletions
from agent.models.client import Chunk, ContextOverflow, Delta, ModelError, ModelStalled, Request
from agent.models.settings import ModelSettings
from tests.support.scripted_model import ScriptedModel, Turn

SECRET = "sk-live-abcdefghijklmnop"


@contextlib.asynccontextmanager
async def client(
    base_url: str, environ: Mapping[str, str] | None = None, name: str = "scripted", **settings: Any
) -> AsyncIterator[ChatCompletions]:
    settings = {"model": name, "base_url": base_url, "tries": 1, **settings}
    subject = ChatCompletions("test", ModelSettings.model_validate(settings), environ or {})
    try:
        yield subject
    finally:
        await subject.close()


async def failure(
    base_url: str, environ: Mapping[str, str] | None = None, text: str = "hello", **settings: Any
) -> tuple[ModelError, list[Chunk]]:
    """The error that a sample ends in, and what it had yielded."""
    found: list[Chunk] = []
    messages = [{"role": "user", "content": text}]
    async with client(base_url, environ, **settings) as subject:
        with pytest.raises(ModelError) as caught:
            async with aclosing(subject.sample(Request("s", messages, []))) as stream:
                async for chunk in stream:
                    found.append(chunk)
    assert SECRET not in f"{caught.value} {caught.value.__cause__} {caught.value.__context__}"
    return caught.value, found


async def scripted(turn: Turn, **options: Any) -> tuple[ModelError, list[Chunk]]:
    with ScriptedModel([turn]) as model:
        return await failure(model.base_url, **options)


async def test_a_wrong_key_names_the_variable_and_never_the_key() -> None:
    with ScriptedModel(["never"], key="right") as model:
        error, _ = await failure(model.base_url, {"MY_KEY": SECRET}, api_key_env="MY_KEY")
    assert "refused the key (401)" in error.message and "MY_KEY" in error.message
    assert not error.retryable


async def test_a_key_that_is_no_secret_leaves_the_words_of_the_provider_alone() -> None:
    """Local servers take any key; replacing an `x` wherever it stands made messages unreadable."""
    with ScriptedModel([Turn(status=400, error={"error": {"message": "max next tokens exceeded"}})]) as model:
        error, _ = await failure(model.base_url, {"MY_KEY": "x"}, api_key_env="MY_KEY")
    assert error.message.endswith("refused the request (400): max next tokens exceeded.")


async def test_a_provider_that_repeats_the_key_is_not_repeated() -> None:
    words = f"Incorrect API key provided: {SECRET} or sk-liv*****mnop."
    turn = Turn(status=401, error={"error": {"message": words, "code": "invalid_api_key"}})
    error, _ = await scripted(turn, environ={"MY_KEY": SECRET}, api_key_env="MY_KEY")
    assert "[key]" in error.message and "mnop" not in error.message


async def test_a_missing_key_is_said_before_anything_is_sent() -> None:
    with ScriptedModel(["never"]) as model:
        error, _ = await failure(model.base_url, {}, api_key_env="MY_KEY")
        assert model.requests == []
    assert "MY_KEY is not set" in error.message


@pytest.mark.parametrize("key", [f"{SECRET}\n{SECRET}", f"{SECRET} # mine", f"{SECRET}é", f"{SECRET}\x00"])
async def test_a_key_that_cannot_be_one(key: str) -> None:
    with ScriptedModel(["never"]) as model:
        error, _ = await failure(model.base_url, {"MY_KEY": key}, api_key_env="MY_KEY")
        assert model.requests == []
    assert "MY_KEY holds spaces" in error.message


@pytest.mark.parametrize("port", ["99999", "x", "-1"])
async def test_a_port_that_cannot_be_one(port: str) -> None:
    error, _ = await failure(f"http://127.0.0.1:{port}/v1")
    assert "base_url" in error.message and not error.retryable


async def test_an_endpoint_that_wants_a_key_nobody_named() -> None:
    with ScriptedModel(["never"], key="right") as model:
        error, _ = await failure(model.base_url)
    assert "api_key_env" in error.message


async def test_forbidden_says_what_the_key_may_not_do() -> None:
    error, _ = await scripted(Turn(status=403, error={"error": "no access"}))
    assert "(403): no access" in error.message and "may not use model 'scripted'" in error.message


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (404, {"error": {"message": "The model `x` does not exist", "code": "model_not_found"}}),
        (404, {"detail": "Not Found"}),
        (400, {"error": {"message": "x is not a valid model ID", "code": 400}}),
    ],
)
async def test_an_unknown_model_lists_those_there_are(status: int, said: Any) -> None:
    error, _ = await scripted(Turn(status=status, error=said), name="x")
    assert "does not know the model 'x'" in error.message and "It has: scripted." in error.message
    assert not error.retryable


async def test_a_base_url_without_v1_is_suspected() -> None:
    with ScriptedModel(["never"]) as model:
        error, _ = await failure(model.base_url.removesuffix("/v1") + "/nothing")
    assert "/v1" in error.message


async def test_a_web_page_instead_of_an_api() -> None:
    page = "<!doctype html><html><title>Welcome</title></html>"
    error, _ = await scripted(Turn(raw_body=page))
    assert "no chat completion" in error.message and "doctype" in error.message
    assert "base_url" in error.message and not error.retryable
    error, _ = await scripted(Turn(status=400, error=page, headers={"content-type": "text/html"}))
    assert "Welcome" in error.message and "<html>" not in error.message


@pytest.mark.parametrize(
    "body", ['{"status": "ok"}', "[]", '{"error": {"message": "busy", "code": 503}}', "{"]
)
async def test_json_that_is_no_answer(body: str) -> None:
    error, found = await scripted(Turn(raw_body=body, headers={"content-type": "application/json"}))
    assert found == [] and (
        "no chat completion" in error.message or "chunk" in error.message or "busy" in error.message
    )


async def test_nobody_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        begun = time.monotonic()
        error, found = await failure(f"http://127.0.0.1:{port}/v1", tries=6)
    assert f"127.0.0.1:{port}" in error.message and "Is the server running there?" in error.message
    assert "Tried 3 times" in error.message and len(found) == 2
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize("base_url", ["localhost:8000/v1", "ftp://127.0.0.1/v1", "http:///v1", "nonsense"])
async def test_an_address_that_is_none(base_url: str) -> None:
    error, _ = await failure(base_url)
    assert "http:// or https://" in error.message and not error.retryable


async def test_an_address_with_a_password_is_shown_without_it() -> None:
    with ScriptedModel([Turn(status=418)]) as model:
        error, _ = await failure(f"http://me:{SECRET}@127.0.0.1:{model.port}/v1")
    assert f"http://127.0.0.1:{model.port}/v1 refused the request (418)" in error.message


async def test_an_endpoint_that_dies_mid_token() -> None:
    error, found = await scripted(Turn(text="one two three", die_after=2))
    assert found == [Delta("text", "one ")]
    assert "broke after 4 characters of its answer" in error.message
    assert error.retryable and not isinstance(error, ModelStalled)


async def test_a_stream_that_ends_without_a_finish_reason_is_no_answer() -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "half an ans"}}]}
    error, found = await scripted(Turn(chunks=[chunk], done=False))
    assert found == [Delta("text", "half an ans")]
    assert "without a finish reason" in error.message and error.retryable


async def test_an_endpoint_that_stalls_mid_token() -> None:
    begun = time.monotonic()
    error, found = await scripted(Turn(text="one two three", stall_after=2), between_tokens_s=0.2)
    assert isinstance(error, ModelStalled) and error.retryable
    assert found == [Delta("text", "one ")]
    assert "stopped in the middle of its answer" in error.message
    assert time.monotonic() - begun < 3


@pytest.mark.parametrize(
    "turn", [Turn(first_ms=2000), Turn(text="x", stall_after=0), Turn(text="x", stall_after=1)]
)
async def test_an_endpoint_that_never_begins(turn: Turn) -> None:
    error, found = await scripted(turn, first_token_s=0.2)
    assert isinstance(error, ModelStalled) and found == []


async def test_comments_that_keep_a_connection_alive_do_not_keep_it_for_ever() -> None:
    turn = Turn(text="x", garbage=": still here\n\n", garbage_after=1, garbage_times=10_000, delay_ms=20)
    error, _ = await scripted(turn, first_token_s=0.3)
    assert isinstance(error, ModelStalled)


async def test_a_slow_consumer_is_no_stall() -> None:
    with ScriptedModel([Turn(text="one two three", delay_ms=1)]) as model:
        async with client(model.base_url, between_tokens_s=0.2, first_token_s=0.2) as subject:
            texts: list[str] = []
            request = Request("s", [{"role": "user", "content": "x"}], [])
            async with aclosing(subject.sample(request)) as stream:
                async for chunk in stream:
                    if isinstance(chunk, Delta):
                        texts.append(chunk.text)
                        time.sleep(0.3)
    assert "".join(texts) == "one two three"


@pytest.mark.parametrize("garbage", ["data: {half\n\n", "data: [1, 2]\n\n", 'data: {"choices": 3}\n\n'])
async def test_broken_chunks(garbage: str) -> None:
    error, _ = await scripted(Turn(text="one", garbage=garbage, garbage_after=1))
    assert "The endpoint sent a chunk that" in error.message


async def test_a_failure_reported_inside_the_stream() -> None:
    chunk = {"error": {"message": "upstream overloaded", "code": 502}}
    error, _ = await scripted(Turn(chunks=[chunk]))
    assert "failed (502): upstream overloaded" in error.message
    finish = {
        "choices": [{"delta": {"content": "some"}, "finish_reason": "error", "error": {"message": "cut"}}]
    }
    error, found = await scripted(Turn(chunks=[finish]))
    assert error.message.endswith("failed: cut.") and error.retryable
    assert found == []


async def test_no_credit_and_long_waits_are_not_waited_for() -> None:
    said = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
    error, _ = await scripted(Turn(status=429, error=said), tries=6)
    assert "lack of credit" in error.message
    error, found = await scripted(Turn(status=429, headers={"retry-after": "3600"}), tries=6)
    assert "wait 3600 s" in error.message and found == []


async def test_a_provider_that_forbids_another_try_is_obeyed() -> None:
    error, found = await scripted(Turn(status=500, headers={"x-should-retry": "false"}), tries=6)
    assert found == [] and not error.retryable


@pytest.mark.parametrize("status", [400, 413, 422, 500])
async def test_an_unlabelled_refusal_of_a_full_window_is_an_overflow(status: int) -> None:
    turn = Turn(status=status, error={"error": {"message": "Bad request"}})
    error, _ = await scripted(turn, text="x" * 14_500, context_window=4096)
    assert isinstance(error, ContextOverflow) and not error.retryable
    if status == 400:
        error, _ = await scripted(turn, text="short", context_window=4096)
        assert not isinstance(error, ContextOverflow)


async def test_an_answer_cut_before_its_first_token_is_an_overflow() -> None:
    error, _ = await scripted(Turn(finish="length"))
    assert isinstance(error, ContextOverflow)


async def test_a_window_enforced_by_the_endpoint() -> None:
    with ScriptedModel(["never"], window=4000) as model:
        error, _ = await failure(model.base_url, text="word " * 6000)
    assert isinstance(error, ContextOverflow) and "4000 tokens" in error.message


async def test_our_estimate_learns_from_what_the_endpoint_counted() -> None:
    """Text of many tokens for its bytes: only a learned ratio knows that the window is full."""
    usage = {"prompt_tokens": 2000}
    turns = [Turn(text="ok", usage=usage), Turn(status=400, error={"error": {"message": "no"}})]
    with ScriptedModel(turns) as model:
        async with client(model.base_url, context_window=2100) as subject:
            request = Request("s", [{"role": "user", "content": "{}();" * 400}], [])
            async for _ in subject.sample(request):
                pass
            with pytest.raises(ContextOverflow):
                async for _ in subject.sample(request):
                    pass
