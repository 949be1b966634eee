"""What was sampled stays token for token; only what is new is tokenised."""

from typing import Any

import pytest

from agent.events import Call
from agent.rendering.chatml import ChatML
from agent.rendering.codec import Codec
from agent.rendering.conversation import Conversations
from agent.rendering.routed import RoutedChatML

pytestmark = pytest.mark.local_model
SYSTEM = {"role": "system", "content": "Be brief."}
TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str, calls: list[Call] | None = None, ids: str = "new") -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = [
            {"id": f"{ids}{at}", "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for at, c in enumerate(calls)
        ]
    return message


@pytest.fixture
def renderer(codec: Codec) -> ChatML:
    return ChatML(codec)


@pytest.fixture
def conversations(renderer: ChatML) -> Conversations:
    return Conversations(renderer)


def test_a_prompt_is_what_the_family_expects(codec: Codec, renderer: ChatML) -> None:
    messages = [SYSTEM, user("Hi <|im_end|>"), assistant("Hello"), user("Bye")]
    assert codec.decode(renderer.fresh(messages, [])) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi <|im_end|><|im_end|>\n"
        "<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"
    )
    described = codec.decode(renderer.fresh(messages, [TOOL]))
    assert '<tools>\n{"name":"read","parameters":{"type":"object"}}\n</tools>' in described


def test_calls_and_their_results_are_written_in_tags(codec: Codec, renderer: ChatML) -> None:
    calls = [Call(id="1", name="read", arguments='{"path": "a"}'), Call(id="2", name="read", arguments="{}")]
    results = [{"role": "tool", "tool_call_id": f"new{at}", "content": f"text {at}"} for at in range(2)]
    text = codec.decode(renderer.fresh([user("Look"), assistant("", calls), *results], []))
    assert '<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>\n<tool_call>' in text
    assert (
        "<|im_start|>user\n<tool_response>\ntext 0\n</tool_response>\n<tool_response>\ntext 1\n"
        "</tool_response><|im_end|>\n" in text
    )


def test_a_routed_model_sees_no_schemas_and_its_question_again(codec: Codec) -> None:
    calls = [Call(id="1", name="read", arguments='{"path": "a"}')]
    result = {"role": "tool", "tool_call_id": "new0", "content": "x = 1"}
    messages = [SYSTEM, user("What is x?\n\n<editor_context>\n…\n</editor_context>"), assistant("", calls)]
    routed = RoutedChatML(codec)
    fresh = codec.decode(routed.fresh([*messages, result], [TOOL]))
    assert "<tools>" not in fresh
    said = "The result of read is:\n\nx = 1\n\nUse this result to answer in one or two sentences: What is x?"
    assert said in fresh
    extended = routed.extend(messages, [result], [TOOL], True)
    assert extended is not None
    assert said in codec.decode(extended)


@pytest.mark.parametrize("ended", [True, False])
def test_the_next_prompt_begins_with_the_last_and_what_was_sampled(
    codec: Codec, conversations: Conversations, ended: bool
) -> None:
    messages = [SYSTEM, user("One")]
    first = conversations.prompt("s", messages, [TOOL])
    assert first.context == "start"
    # Ids that no tokenizer would make of this text.
    sampled = [codec.encode(letter)[0] for letter in "Hello"] + ([2] if ended else [])
    conversations.answered("s", first, sampled, ended, "Hello", [])
    messages += [assistant("Hello"), user("Two")]
    second = conversations.prompt("s", messages, [TOOL])
    assert second.context == "extend"
    assert second.ids[: len(first.ids) + len(sampled)] == [*first.ids, *sampled]
    tail = codec.decode(second.ids[len(first.ids) + len(sampled) :])
    end = "" if ended else "<|im_end|>"
    assert tail == f"{end}\n<|im_start|>user\nTwo<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ('{"path": "a"}', '{"path": "a"}'),
        ('{"path": ', '{"malformed": "{\\"path\\": "}'),
        ('{"path": "aaaa"}', '{"left_out": "14 characters of arguments"}'),
    ],
)
def test_calls_are_recognised_under_new_ids_and_as_notes(
    conversations: Conversations, written: str, kept: str
) -> None:
    messages = [user("One")]
    first = conversations.prompt("s", messages, [])
    conversations.answered("s", first, [9, 2], True, "", [Call(id="mine", name="read", arguments=written)])
    messages.append(assistant("", [Call(id="theirs", name="read", arguments=kept)]))
    messages.append({"role": "tool", "tool_call_id": "new0", "content": "x"})
    second = conversations.prompt("s", messages, [])
    assert second.context == "extend"
    assert second.ids[: len(first.ids) + 2] == [*first.ids, 9, 2]


def test_an_answer_cut_short_goes_on_from_its_prompt(codec: Codec, conversations: Conversations) -> None:
    messages = [SYSTEM, user("One")]
    first = conversations.prompt("s", messages, [])
    conversations.answered("s", first, [700, 701, 2], True, "Whole", [])
    second = conversations.prompt("s", [*messages, assistant("Wh"), user("Two")], [])
    assert second.context == "extend"
    opening = len(codec.encode_control("<|im_start|>assistant\n"))
    assert second.ids[: len(first.ids) - opening] == first.ids[:-opening]
    assert "assistant\nWh<|im_end|>" in codec.decode(second.ids)
    # Asked again without an answer: the same prompt.
    again = conversations.prompt("s", [*messages, assistant("Wh"), user("Two")], [])
    assert again.ids == second.ids


def test_anything_else_is_a_fork(conversations: Conversations) -> None:
    messages = [SYSTEM, user("One")]
    first = conversations.prompt("s", messages, [])
    conversations.answered("s", first, [700, 2], True, "Yes", [])
    longer = [*messages, assistant("Yes"), user("Two")]
    assert conversations.prompt("t", longer, []).context == "fork"
    assert conversations.prompt("s", longer, [TOOL]).context == "fork"
    assert conversations.prompt("s", [user("Other"), *longer[2:]], [TOOL]).context == "fork"
    assert conversations.prompt("s", [user("A summary")], [TOOL]).context == "start"


def test_only_the_most_recent_conversations_are_kept(renderer: ChatML) -> None:
    conversations = Conversations(renderer, kept=2)
    for name in "abc":
        prompt = conversations.prompt(name, [user("One")], [])
        conversations.answered(name, prompt, [700, 2], True, "Yes", [])
    longer = [user("One"), assistant("Yes"), user("Two")]
    assert conversations.prompt("c", longer, []).context == "extend"
    assert conversations.prompt("a", longer, []).context == "fork"
