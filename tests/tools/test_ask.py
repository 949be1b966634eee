"""The `ask` tool where somebody answers, where nobody does, and where nobody can."""

import json
from pathlib import Path
from typing import Any

import pytest

from tools.ask import Answer, Ask, Question
from tools.errors import EnvironmentFault, InvalidArguments
from tools.result import ToolResult
from tools.sandbox.policy import SandboxPolicy
from tools.workspace import Workspace


async def run(place: Workspace, **arguments: Any) -> ToolResult:
    parsed = Ask.parse(json.dumps(arguments))
    await Ask().propose(parsed, place)
    return await Ask().run(parsed, place, lambda text: None)


async def test_the_answer_is_the_result(tmp_path: Path) -> None:
    place, asked = Workspace(tmp_path, SandboxPolicy()), []

    async def answer(question: Question) -> Answer:
        asked.append(question)
        return Answer("blue", "editor") if question.options else Answer(None, reason="dismissed")

    place.ask = answer
    result = await run(place, question=" Which? ", options=["red", "blue"])
    assert (result.text, result.error, result.data) == ("blue", None, {"answered": True, "by": "editor"})
    assert asked == [Question("Which?", ("red", "blue"))]
    result = await run(place, question="Why?")
    assert result.error == "aborted" and "did not answer (dismissed)" in result.text


async def test_nobody_is_there(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="Nobody can be asked here"):
        await run(Workspace(tmp_path, SandboxPolicy()), question="Which?")


@pytest.mark.parametrize(
    "arguments",
    [
        {"question": " "},
        {"question": "x" * 4001},
        {"question": "Which?", "options": ["one"]},
        {"question": "Which?", "options": ["a", "a"]},
        {"question": "Which?", "options": ["a", "x" * 201]},
        {"question": "Which?", "options": ["a", " "]},
    ],
)
async def test_what_is_no_question_is_refused(tmp_path: Path, arguments: Any) -> None:
    with pytest.raises(InvalidArguments):
        await run(Workspace(tmp_path, SandboxPolicy()), **arguments)
