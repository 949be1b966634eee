"""A tool call on its way: what is known of it before it runs, and the step it belongs to."""

from dataclasses import dataclass, field

from agent.events import Call, Generation, Parse
from agent.session import Session
from tools.errors import ToolError
from tools.result import Proposal
from tools.tool import Arguments, Tool


@dataclass(slots=True)
class Prepared:
    """A call after the checks that need no approval. `refusal` is set where it cannot run at all."""

    call: Call
    tool: Tool | None = None
    arguments: Arguments | None = None
    shown: Arguments | None = None
    """The arguments as the model wrote them, with placeholders."""
    proposal: Proposal = field(default_factory=lambda: Proposal(title=""))
    parse: Parse = "ok"
    refusal: ToolError | None = None


@dataclass(slots=True)
class Step:
    """What the calls of one step share."""

    session: Session
    generation: Generation
    turn: int
    step: int
    group: int = 0
    instructed: set[str] = field(default_factory=set)
