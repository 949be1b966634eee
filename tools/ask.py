"""The `ask` tool: a question to the user, answered while the turn waits."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from tools.errors import EnvironmentFault, InvalidArguments
from tools.result import Proposal, ToolResult
from tools.text import shortened
from tools.tool import Arguments, Kind, Progress, Tool
from tools.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Question:
    """`options` are short answers to choose from; whoever is asked may say something else."""

    text: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """`text` is None where nobody answered; `reason` then says why."""

    text: str | None
    by: str | None = None
    reason: str | None = None


AskUser = Callable[[Question], Awaitable[Answer]]


def _said(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    return text.strip()


Said = Annotated[str, AfterValidator(_said)]


class AskArguments(Arguments):
    question: Said = Field(description="What you need to know, in one or two sentences.", max_length=4_000)
    options: list[Said] | None = Field(
        default=None, description="Short answers to choose from.", min_length=2, max_length=8
    )


class Ask(Tool):
    """Ask the user a question and wait for the answer.

    Only for what you cannot find out yourself and what changes what you do. Offer `options` where you can.
    """

    name: ClassVar[str] = "ask"
    kind: ClassVar[Kind] = "other"
    read_only: ClassVar[bool] = True
    Arguments = AskArguments

    async def propose(self, arguments: AskArguments, workspace: Workspace) -> Proposal:
        options = arguments.options or []
        if len(set(options)) != len(options):
            raise InvalidArguments("An option is given twice; give each once.")
        if long := next((option for option in options if len(option) > 200), None):
            raise InvalidArguments(f"The option {long[:40]!r}… is too long; give at most 200 characters.")
        first = arguments.question.split("\n", 1)[0]
        return Proposal(shortened(first, 80))

    async def run(self, arguments: AskArguments, workspace: Workspace, progress: Progress) -> ToolResult:
        if workspace.ask is None:
            raise EnvironmentFault(
                "Nobody can be asked here. Decide yourself, and say in your answer what you assumed."
            )
        answer = await workspace.ask(Question(arguments.question, tuple(arguments.options or ())))
        data = {"answered": answer.text is not None, "by": answer.by}
        if answer.text is None:
            why = f" ({answer.reason})" if answer.reason else ""
            text = f"The user did not answer{why}. Decide yourself and say what you assumed, or end the turn."
            return ToolResult(text, data=data, error="aborted")
        return ToolResult(answer.text, data=data)
