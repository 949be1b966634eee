"""A model of random weights cannot write a wrong call once it has begun one."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent.engine.grammar import NoCallFirst, ToolCallConstraint, Vocabulary
from agent.engine.protocol import Job, Sampling
from agent.engine.torch_engine import TorchEngine
from agent.rendering.codec import Codec

pytestmark = pytest.mark.local_model


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [
    tool("paint", colour={"enum": ["red", "green"]}, times={"type": "integer", "minimum": 1, "maximum": 99}),
    tool("wait", sure={"type": "boolean"}),
]


@pytest.fixture(scope="module")
def vocabulary(codec: Codec) -> Vocabulary:
    return Vocabulary(codec.json(), 49152, 2)


async def test_a_begun_call_is_completed_by_the_schema(
    tiny: Path, codec: Codec, vocabulary: Vocabulary
) -> None:
    engine = TorchEngine(tiny)
    names = set()
    for seed in range(8):
        constraint = ToolCallConstraint(vocabulary, TOOLS, codec.decode)
        texts: list[str] = []
        characters = codec.reader()

        def closed(id: int, logprob: float, texts: list[str] = texts, characters: Any = characters) -> bool:
            texts.append(characters.feed(id))
            return "</tool_call>" in "".join(texts)

        job = Job(
            "a",
            codec.encode_control("<|im_start|>assistant\n"),
            Sampling(temperature=1.0, max_tokens=120, seed=seed),
            opening=codec.encode("Well. <tool_call>"),
            constraint=constraint,
        )
        drawn = await engine.generate(job, closed)
        assert drawn.constrained
        body = "".join(texts).split("<tool_call>")[1].split("</tool_call>")[0]
        call = json.loads(body)
        names.add(call["name"])
        if call["name"] == "paint":
            assert call["arguments"]["colour"] in ("red", "green")
            assert 1 <= call["arguments"]["times"] <= 99
        else:
            assert isinstance(call["arguments"]["sure"], bool)
    assert names <= {"paint", "wait"}
    await engine.close()


def test_text_is_free_until_a_call_begins_and_after_it_ends(codec: Codec, vocabulary: Vocabulary) -> None:
    constraint = ToolCallConstraint(vocabulary, TOOLS, codec.decode)
    for id in codec.encode("A plain answer, 3 < 4."):
        constraint.accept(id)
        assert constraint.allowed() is None
    for id in codec.encode('<tool_call>\n{"name": "wait"'):
        constraint.accept(id)
    mask = constraint.allowed()
    assert mask is not None
    assert 0 < sum(mask) < 100
    for id in codec.encode(', "arguments": {"sure": true}}\n</tool_call>'):
        constraint.accept(id)
    assert constraint.allowed() is None


def test_an_answer_may_be_kept_from_beginning_with_a_call(codec: Codec, vocabulary: Vocabulary) -> None:
    constraint = NoCallFirst(vocabulary)
    mask = constraint.allowed()
    assert mask is not None
    (opening, *_), (word, *_) = codec.encode("<tool_call>"), codec.encode("The")
    assert not mask[opening]
    assert mask[word]
    constraint.accept(word)
    assert constraint.allowed() is None
