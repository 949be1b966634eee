"""The client against an endpoint that misbehaves in every way: each sample has one honest end."""

import asyncio
import resource
from contextlib import aclosing
from typing import Any

import pytest

from agent.models.chat_completions import ChatCompletions
from agent.models.client import Completion, Delta, ModelError, Request
from agent.models.settings import ModelSettings
from tests.support.chaos_model import ChaosModel

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}},
                "required": ["path"],
            },
        },
    }
    for name in ("read", "grep", "edit")
]


async def one(subject: ChatCompletions) -> Completion | ModelError:
    """The end of one sample; what was streamed is what the completion says."""
    text, end = [], None
    try:
        async with aclosing(
            subject.sample(Request("s", [{"role": "user", "content": "go"}], TOOLS))
        ) as stream:
            async for chunk in stream:
                assert end is None, "nothing follows a completion"
                if isinstance(chunk, Delta) and chunk.kind == "text":
                    text.append(chunk.text)
                elif isinstance(chunk, Completion):
                    end = chunk
    except ModelError as error:
        return error
    assert end is not None and end.text == "".join(text)
    assert all(call.id for call in end.calls)
    assert bool(end.calls) == (end.finish == "tool_calls")
    end.text.encode()
    return end


@pytest.mark.parametrize("seed", [1, 2])
async def test_every_sample_of_a_thousand_ends_once(seed: int) -> None:
    with ChaosModel(seed, transport=True, huge=2**20) as model:
        settings = ModelSettings(model="scripted", base_url=model.base_url, between_tokens_s=5, tries=3)
        subject = ChatCompletions("chaos", settings, {})
        ends: list[Completion | ModelError] = []
        peaks: list[int] = []
        for _ in range(5):
            for _ in range(2):
                ends += await asyncio.gather(*(one(subject) for _ in range(50)))
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
            model.requests.clear()
        await subject.close()
    assert model.errors == []
    assert set(model.kinds) == {way.__name__.strip("_") for way in model.ways} | {"says"}
    completions = [end for end in ends if isinstance(end, Completion)]
    assert len(completions) > 400
    assert max(len(end.calls) for end in completions) == 40
    assert max((len(call.arguments) for end in completions for call in end.calls), default=0) > 2**20
    assert peaks[-1] - peaks[1] < 40 * 1024, f"memory grew: {peaks} KiB"


async def test_the_same_seed_misbehaves_the_same_way() -> None:
    async def play() -> list[str]:
        with ChaosModel(7, huge=1000) as model:
            subject = ChatCompletions("chaos", ModelSettings(model="m", base_url=model.base_url), {})
            ends = [await one(subject) for _ in range(40)]
            await subject.close()
        return [f"{end.text}{end.calls}" if isinstance(end, Completion) else "error" for end in ends]

    assert await play() == await play()
