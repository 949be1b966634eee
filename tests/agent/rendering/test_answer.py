"""Text, thoughts and calls are told apart while they come, however the text is cut."""

import pytest

from agent.models.client import Delta
from agent.rendering.answer import AnswerReader, overlap

ANSWERS = [
    ("Hello.", "Hello.", "", []),
    ("  Hello \n world \n", "Hello \n world", "", []),
    (
        'Let me look.\n\n<tool_call>\n{"name": "read", "arguments": {"path": "a.py"}}\n</tool_call>',
        "Let me look.",
        "",
        [("read", '{"path": "a.py"}')],
    ),
    (
        '<tool_call>{"name": "read", "arguments": {}}</tool_call>\n<tool_call>{"name": "ls"}</tool_call> Ok',
        "Ok",
        "",
        [("read", "{}"), ("ls", "{}")],
    ),
    ("<think>\nHm. a < b\n</think>\n\nYes", "Yes", "Hm. a < b\n", []),
    (
        'Do it:\n```json\n{"name": "read", "arguments": {"path": "x"}}\n```\nok',
        "Do it:\n\nok",
        "",
        [("read", '{"path": "x"}')],
    ),
    (
        'An example:\n```json\n{"name": "Bob", "age": 3}\n```\nok',
        'An example:\n```json\n{"name": "Bob", "age": 3}\n```\nok',
        "",
        [],
    ),
    ('```json\n{"a": 1}', '```json\n{"a": 1}', "", []),
    ("a <tool and ``` and <thing>", "a <tool and ``` and <thing>", "", []),
    ('<tool_call>\n{"name": "read", "argum', "", "", [("read", '{"name": "read", "argum')]),
]


@pytest.mark.parametrize("cut", [1, 2, 7, 1000])
@pytest.mark.parametrize(("written", "text", "thought", "calls"), ANSWERS)
def test_an_answer_is_read_alike_however_it_is_cut(
    written: str, text: str, thought: str, calls: list[tuple[str, str]], cut: int
) -> None:
    reader = AnswerReader({"read", "grep"})
    deltas: list[Delta] = []
    for at in range(0, len(written), cut):
        deltas += reader.feed(written[at : at + cut])
    deltas += reader.finish()
    assert reader.text == text
    assert reader.thought == thought
    assert [(call.name, call.arguments) for call in reader.calls] == calls
    assert "".join(delta.text for delta in deltas if delta.kind == "text") == text
    assert "".join(delta.text for delta in deltas if delta.kind == "thought") == thought
    assert all(delta.text for delta in deltas)


def test_text_is_shown_as_soon_as_it_cannot_be_markup() -> None:
    reader = AnswerReader({"read"})
    assert reader.feed("Good ") == [Delta("text", "Good")]
    assert reader.feed("day <to") == [Delta("text", " day")]
    assert reader.feed("p>") == [Delta("text", " <top>")]


def test_a_stop_string_ends_the_answer_and_is_no_part_of_it() -> None:
    reader = AnswerReader(set(), stop=("END",))
    assert reader.feed("one E") == [Delta("text", "one")]
    assert not reader.stopped
    assert reader.feed("ND two") == []
    assert reader.stopped
    assert reader.feed("more") == reader.finish() == []
    assert reader.text == "one"


def test_overlap_is_the_longest_possible_beginning() -> None:
    assert overlap("abc<tool", ["<tool_call>", "```json"]) == 5
    assert overlap("abc``", ["<tool_call>", "```json"]) == 2
    assert overlap("abc", ["<tool_call>"]) == 0
