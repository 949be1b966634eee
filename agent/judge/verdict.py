"""What the judge says: of each part of a line, and of the whole."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from agent.events import Mode
from agent.judge.rules import Rule

Verdict = Literal["allow", "ask", "deny"]
STRICTNESS: dict[Verdict, int] = {"allow": 0, "ask": 1, "deny": 2}


@dataclass(frozen=True, slots=True)
class Setting:
    """Where a line is judged.

    `cwd`: the shell's folder, absolute. `confined`: a sandbox holds commands to the workspace; `network`:
    it lets them out. `allowed`: rules about commands; `edits`: all edits are allowed. `denied` wins over
    everything. `defined`: names that earlier commands defined anew in this shell.
    """

    root: Path
    mode: Mode = "ask"
    cwd: str | None = None
    confined: bool = True
    network: bool = False
    edits: bool = False
    allowed: tuple[Rule, ...] = ()
    denied: tuple[Rule, ...] = ()
    defined: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Part:
    """One simple command (or redirection) of a line. `rule` is what an "always" on it would allow."""

    text: str
    verdict: Verdict
    reason: str | None = None
    rule: Rule | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """The strictest verdict of all parts, and the reason for it. `defines`: names the line defines."""

    verdict: Verdict
    reason: str | None
    parts: tuple[Part, ...] = ()
    defines: frozenset[str] = field(default_factory=frozenset)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """What an "always" would allow from now on: one rule for each part that needs one and can have it."""
        return tuple(dict.fromkeys(part.rule for part in self.parts if part.verdict == "ask" and part.rule))

    @property
    def whole(self) -> bool:
        """Whether those rules would let the same line run without a question."""
        return all(part.rule is not None for part in self.parts if part.verdict == "ask")
