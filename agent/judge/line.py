"""Judges a command line: each simple command of it for itself, the whole as its strictest part."""

from dataclasses import dataclass, replace
from typing import Final

from agent.judge import git as gits
from agent.judge import reading, rules
from agent.judge.assignments import harmless
from agent.judge.command import Command, Redirect
from agent.judge.effects import (
    DELETERS,
    FREE_STATE,
    SHELL_STATE,
    fetches,
    reads_script,
    runs_code,
    writes_to,
)
from agent.judge.parsing import parse
from agent.judge.places import Places
from agent.judge.rules import Rule
from agent.judge.verdict import STRICTNESS, Judgement, Part, Setting, Verdict
from agent.judge.words import Unreadable
from agent.judge.wrappers import SHELLS, Wrapped, unwrap

MAX_WRAPPED: Final = 8
SHOWN: Final = 80


@dataclass(frozen=True, slots=True)
class _Finding:
    """`why` None: it only reads. `harsh`: it asks even where commands are confined. `rule`: what an "always"
    makes; `covered`: one that exists allows it. `denied`: the configuration forbids it. `hidden`: what
    it runs cannot be known; `unread`: not even its text could be read."""

    text: str
    why: str | None = None
    harsh: bool = False
    rule: Rule | None = None
    covered: bool = False
    denied: bool = False
    hidden: bool = False
    unread: bool = False


def judge_line(line: str, setting: Setting) -> Judgement:
    """Judge a line of bash. Takes milliseconds, at most a tenth of a second and a bit: run it in a thread."""
    judge = _Judge(setting)
    judge.line(line, 0, None)
    parts = tuple(_part(finding, setting) for finding in judge.findings)
    if not parts:
        return Judgement("allow", None)
    worst, _ = max(
        zip(parts, judge.findings, strict=True),
        key=lambda pair: (STRICTNESS[pair[0].verdict], pair[1].harsh, pair[1].why is not None),
    )
    return Judgement(worst.verdict, worst.reason, parts, frozenset(judge.defined - setting.defined))


def _part(finding: _Finding, setting: Setting) -> Part:
    shown = finding.text if len(finding.text) <= SHOWN else finding.text[: SHOWN - 1] + "…"
    reason = None if finding.why is None else f"`{' '.join(shown.split())}` {finding.why}"
    verdict: Verdict = "ask"
    if finding.denied:
        verdict, reason = "deny", f"`{' '.join(shown.split())}` is forbidden by your configuration"
    elif finding.unread and setting.denied:
        verdict, reason = "deny", f"{reason}; so it may be what your configuration forbids: write it simpler"
    elif finding.hidden and setting.denied and setting.mode == "full":
        verdict = "ask"
    elif setting.mode == "full" or finding.why is None:
        verdict = "allow"
    elif setting.mode == "plan":
        verdict = "deny"
    elif finding.covered or (setting.mode == "auto" and setting.confined and not finding.harsh):
        verdict = "allow"
    return Part(finding.text, verdict, reason, finding.rule if verdict == "ask" else None)


class _Judge:
    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.places = Places(setting.root, setting.cwd)
        self.findings: list[_Finding] = []
        self.defined = set(setting.defined)

    def line(self, text: str, depth: int, piped: str | None, *, repeated: bool = False) -> None:
        """Judge a text as the shell would run it; `repeated`: perhaps many times."""
        if depth > MAX_WRAPPED:
            self._say(text, "wraps commands too deeply to be judged", harsh=True, unread=True)
            return
        try:
            commands = parse(text)
        except Unreadable as error:
            self._say(text, f"cannot be judged: {error}", harsh=True, unread=True)
            return
        for command in commands:
            again = command.repeated or repeated
            self.command(replace(command, piped=command.piped or piped, repeated=again), depth)

    def command(self, command: Command, depth: int) -> None:
        """Judge one simple command with its redirections."""
        for redirect in command.redirects:
            self._redirect(redirect, command.source)
        if command.defines is not None:
            self.defined.add(command.defines)
        words = command.words
        if not words:
            if command.odd is not None:
                self._say(command.source, command.odd)
            return
        shown = " ".join(word.source for word in words)
        if words[0].plain is None:
            condition = words[0].source in ("[", "[[")  # behind `time`, where the parser sees words in it
            why = "runs a program that only the shell knows"
            self._say(shown, why, harsh=True, hidden=not condition, unread=condition)
            return
        program = words[0].plain
        name = program.rpartition("/")[2]
        if depth > MAX_WRAPPED:
            self._say(shown, "wraps commands too deeply to be judged", harsh=True, unread=True)
            return
        denied = any(rules.forbids(rule, words, self.places) for rule in self.setting.denied)
        if denied:
            self.findings.append(_Finding(shown, "is forbidden", denied=True))
        assigned = next((key for key, value in command.assigned if not harmless(key, value)), None)
        why = command.odd or (f"sets {assigned} for the command, which may obey it" if assigned else None)
        if why is not None:
            self._say(shown if command.odd is None else command.source, why)
        if program in self.defined:
            lost = self.places.lost or len(self.places.folders) > 1
            self._say(shown, f"calls {program!r}, which was defined anew in this shell", harsh=lost)
            return
        if program in ("cd", "pushd"):
            self._cd(command, shown)
        elif program == "popd":
            self.places.lost = True
            self._say(shown, "leads to a folder that only the shell knows")
        elif (wrapped := unwrap(name, words)) is not None:
            if "/" in program:
                self._say(shown, "is a program named by its path")
            self._wrapper(command, wrapped, shown, depth)
        else:
            self._program(command, name, shown, clean=why is None)

    def _wrapper(self, command: Command, wrapped: Wrapped, shown: str, depth: int) -> None:
        if wrapped.opaque is not None:
            self._say(shown, wrapped.opaque, harsh=True, hidden=True)
        if wrapped.why is not None:
            self._say(shown, wrapped.why, harsh=wrapped.harsh)
        assigned = next((key for key, value in wrapped.assigned if not harmless(key, value)), None)
        if assigned is not None:
            self._say(shown, f"sets {assigned} for the command, which may obey it")
        name = (command.words[0].plain or "").rpartition("/")[2]
        if name == "find":
            self._program(command, name, shown, clean=wrapped.why is None)
        elif name in SHELLS and not wrapped.lines and wrapped.opaque is None:
            self._fed(command, shown, depth)
        for inner in wrapped.inner:
            source = " ".join(word.source for word in inner)
            again = command.repeated or len(wrapped.inner) > 1
            one = replace(command, source=source, words=inner, assigned=(), redirects=(), odd=None)
            self.command(replace(one, repeated=again), depth + 1)
        for line in wrapped.lines:
            piped = command.piped or (shown if command.fed else None)
            self.line(line, depth + 1, piped, repeated=command.repeated)

    def _fed(self, command: Command, shown: str, depth: int) -> None:
        """A shell that runs its input."""
        if command.piped is not None:
            self._say(*_piped_into(command, shown), harsh=True, hidden=True)
        elif command.text is not None:
            self.line(command.text, depth + 1, None)
        elif command.fed:
            self._say(shown, "runs what a file or text says", harsh=True, hidden=True)
        else:
            self._say(shown, "starts a shell of its own")

    def _program(self, command: Command, name: str, shown: str, *, clean: bool) -> None:
        words, places, setting = command.words, self.places, self.setting
        if reads_script(name, words) and (name in SHELLS or command.piped is not None or command.fed):
            if command.piped is not None:
                self._say(*_piped_into(command, shown), harsh=True, hidden=True)
            else:
                self._say(shown, "runs a text that is made while it runs", harsh=True, hidden=True)
            return
        if name in (".", "source") and (
            len(words) < 2 or words[1].plain is None or "/dev/" in words[1].source
        ):
            self._say(shown, "runs what only the shell knows", harsh=True, hidden=True)
            return
        if name == "alias":
            self.defined |= {(word.value or "").partition("=")[0] for word in words[1:]}
        git = gits.read(words, places) if name == "git" else None
        if "/" in (words[0].plain or ""):
            why: str | None = "is a program named by its path"
        elif git is not None:
            why = gits.why_not(git, words, places)
            if why is None and not setting.confined:
                why = "may run what the repository's settings name, and nothing confines it here"
        elif name in FREE_STATE and all((word.value or "").isdigit() for word in words[1:]):
            why = None
        elif name in SHELL_STATE:
            why = "changes the shell for later commands"
        else:
            why = reading.why_not(name, words, places)
        if why is None:
            if clean:
                self.findings.append(_Finding(shown))
            return
        self._acts(command, name, shown, why, git, clean=clean)

    def _acts(
        self, command: Command, name: str, shown: str, why: str, git: gits.Git | None, *, clean: bool
    ) -> None:
        words, places = command.words, self.places
        if (severe := writes_to(name, words, places)) is not None:
            self._say(shown, severe, harsh=True)
            return
        if git is not None and git.name in gits.DISCARDS:
            self._say(shown, "deletes files that nothing else holds", harsh=True)
            return
        if git is not None and git.name in ("rm", "checkout", "restore") and not clean:
            self._say(shown, "may discard changes")
            return
        rule = rules.offered(words, places) if clean and not command.repeated else None
        strays = places.strays(words[1:])
        if rule is not None and not rules.covers(rule, words, places):
            rule = None
        covered = clean and any(rules.covers(known, words, places) for known in self.setting.allowed)
        network = fetches(name, words, gits.NETWORK, git.name if git else None)
        if runs_code(name, words):
            why = "runs code that is given to it"
        elif name in DELETERS:
            why = "deletes files"
        elif network is not None:
            why = network
        elif strays is not None and strays[0] == "outside" and "outside" not in why:
            why = f"touches a path outside the workspace: {strays[1].source[:60]}"
        harsh = network is not None and self.setting.network
        self.findings.append(_Finding(shown, why, harsh, rule=rule, covered=covered))

    def _cd(self, command: Command, shown: str) -> None:
        targets = [word for word in command.words[1:] if word.value not in ("-L", "-P", "-e", "--")]
        target = targets[0] if len(targets) == 1 else None
        where = self.places.where(target) if target is not None and target.plain is not None else "unknown"
        if command.repeated:
            self.places.lost = True
            self._say(shown, "changes folders again and again", harsh=True)
            return
        self.places.enter(target if where != "root" else None)
        if where == "root" and target is not None:
            self.places.lost = False
            self.places.folders.add(self.places.root)
            where = "inside"
        if where in ("inside", "git"):
            self.findings.append(_Finding(shown))
        else:
            self._say(shown, "leaves the workspace")

    def _redirect(self, redirect: Redirect, source: str) -> None:
        if redirect.target is None:
            return
        where, target = self.places.where(redirect.target), redirect.target.source[:60]
        if not redirect.writes:
            if redirect.operator == "<" and where in ("outside", "unknown", "temporary"):
                self._say(source, f"reads {target}, which is not surely in the workspace")
            return
        if where == "device":
            return
        if where == "inside" and redirect.target.plain is not None:
            self.findings.append(_Finding(source, f"writes {target}", covered=self.setting.edits))
        elif where == "temporary":
            self._say(source, f"writes {target}", harsh=not self.setting.confined)
        else:
            inside = {"git": "in the repository's own .git folder", "root": "over the workspace"}
            said = inside.get(
                where, "which may be anywhere" if where == "unknown" else "outside the workspace"
            )
            self._say(source, f"writes {target}, {said}", harsh=True)

    def _say(
        self, text: str, why: str, *, harsh: bool = False, hidden: bool = False, unread: bool = False
    ) -> None:
        self.findings.append(_Finding(text, why, harsh, hidden=hidden, unread=unread))


def _piped_into(command: Command, shown: str) -> tuple[str, str]:
    upstream = command.piped or ""
    first = upstream.split()[:1]
    what = "downloads" if first and first[0] in ("curl", "wget", "http") else "prints"
    return f"{upstream} | {shown}", f"runs what `{first[0] if first else 'another'}` {what}"
