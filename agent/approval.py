"""Who decides whether a call may run: the mode, the rules the user made, or the user."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from agent.events import ApprovalRequested, Mode
from agent.judge import Setting, judge_line
from agent.judge.rules import Rule, read, stored
from agent.rule import COMMAND, EDITS, spoken
from tools.result import Proposal
from tools.tool import Tool

UNRULED = frozenset({"delete", "move", "shell_send"})
"""Tools whose "always" would allow too much: what they destroy or type is judged each time."""
SHOWN_RULES = 4
NAME_LENGTH = 120


@dataclass(frozen=True, slots=True)
class Decision:
    """An answer to an approval request. `by` names who answered."""

    outcome: Literal["allowed", "denied", "cancelled"]
    option: str | None = None
    by: str | None = None
    reason: str | None = None


Ask = Callable[[ApprovalRequested], Awaitable[Decision]]


async def deny_headless(request: ApprovalRequested) -> Decision:
    """The answer where nobody can be asked."""
    return Decision("denied", by="headless", reason="nobody is here to approve it")


@dataclass(slots=True)
class Grants:
    """What may run unasked, beside what the mode lets run.

    `rules` are those a person made, as the log keeps them: all sessions of a person in a workspace share one
    set, so that a rule that is made or revoked counts in all of them at once. None: those of the session's
    own log. `allowed` and `denied` come from the configuration. `defined` are names that earlier commands of
    this session defined anew in its shell.
    """

    rules: set[str] | None = None
    allowed: tuple[Rule, ...] = ()
    denied: tuple[Rule, ...] = ()
    defined: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class Ruling:
    """Whether a call runs at once, needs an answer, or is refused, and why.

    `parts` of a command as an approval request shows them: `{text, verdict, reason?, rule?}`. `rules` is what
    an "always" makes; `whole`: with them the same call would run. `defines`: names that it defines anew.
    """

    verdict: Literal["allow", "ask", "deny"]
    reason: str | None = None
    parts: tuple[dict[str, Any], ...] = ()
    rules: tuple[str, ...] = ()
    whole: bool = True
    defines: frozenset[str] = frozenset()

    def options(self) -> list[dict[str, str]]:
        """The answers that a client offers."""
        once = {"optionId": "allow", "name": "Allow once", "kind": "allow_once"}
        deny = {"optionId": "deny", "name": "Deny", "kind": "reject_once"}
        if not self.rules:
            return [once, deny]
        always = {"optionId": "allow_always", "name": self._always(), "kind": "allow_always"}
        return [once, always, deny]

    def _always(self) -> str:
        names = [spoken(rule) for rule in self.rules]
        listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
        return f"Always allow {listed}" if self.whole else f"Allow once, and always {listed}"


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a call is judged by, beside the call itself. `cwd`: the folder its command would run in."""

    root: Path
    mode: Mode
    rules: frozenset[str]
    grants: Grants
    confined: bool
    network: bool = False
    cwd: str | None = None


async def judge(tool: Tool, proposal: Proposal, here: Circumstances) -> Ruling:
    """Judge a call. A command line is parsed and judged by each simple command in it."""
    if tool.read_only:
        return Ruling("allow")
    if proposal.command is not None:
        return await asyncio.to_thread(_judge_command, proposal.command, here)
    rule = rule_of(tool)
    if here.mode == "plan":
        return Ruling("deny", f"in mode {here.mode!r} nothing may be changed")
    if here.mode == "full" or rule in here.rules:
        return Ruling("allow")
    held = not tool.outside and (tool.kind != "execute" or here.confined)
    if here.mode == "auto" and held:
        return Ruling("allow")
    return Ruling("ask", rules=(rule,) if rule is not None else ())


def rule_of(tool: Tool) -> str | None:
    """What an "always" on a call without a command allows: all edits, or this tool."""
    if tool.name in UNRULED:
        return None
    return EDITS if tool.kind == "edit" else tool.name


def _judge_command(command: str, here: Circumstances) -> Ruling:
    grants = here.grants
    setting = Setting(
        root=here.root,
        mode=here.mode,
        cwd=here.cwd,
        confined=here.confined,
        network=here.network,
        edits=EDITS in here.rules,
        allowed=(*grants.allowed, *_about_commands(here.rules)),
        denied=grants.denied,
        defined=grants.defined,
    )
    found = judge_line(command, setting)
    rules = tuple(stored(rule) for rule in found.rules)
    whole = found.whole
    if len(rules) > SHOWN_RULES or sum(map(len, rules)) > NAME_LENGTH:
        rules, whole = (), True  # nobody reads that much before saying "always"
    parts = tuple(
        {
            "text": part.text[:400],
            "verdict": part.verdict,
            **({"reason": part.reason} if part.reason and part.verdict != "allow" else {}),
            **({"rule": stored(part.rule)} if part.rule else {}),
        }
        for part in found.parts[:20]
    )
    return Ruling(found.verdict, found.reason, parts, rules, whole, found.defines)


def _about_commands(rules: Iterable[str]) -> list[Rule]:
    found = []
    for rule in sorted(rules):
        if rule.startswith(COMMAND):
            try:
                found.append(read(rule))
            except ValueError:  # it was cut or redacted on its way to the log, so it names no command
                continue
    return found
