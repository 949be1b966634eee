"""Programs that run another command, which is then judged too."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import dropwhile
from typing import Final

from agent.judge.names import names
from agent.judge.words import UNKNOWN, Word

SHELLS: Final = names("sh bash dash zsh ksh mksh ash fish rbash")
INTERPRETERS: Final = re.compile(
    r"(python|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|luajit|Rscript|tclsh)[\d.]*"
)


@dataclass(slots=True)
class Wrapped:
    """What a wrapper runs. `inner`: commands as words; `lines`: as text. `why`: what the wrapper itself does
    that is worth a question; `opaque`: that what it runs cannot be known; `harsh`: it asks in `auto` too."""

    inner: list[tuple[Word, ...]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    assigned: list[tuple[str, Word]] = field(default_factory=list)
    why: str | None = None
    opaque: str | None = None
    harsh: bool = False


def unwrap(name: str, words: Sequence[Word]) -> Wrapped | None:
    """What a command runs, if its program runs others; `name` is that of the program without its folder."""
    if name in SHELLS:
        return _shell(name, words)
    if (found := _SIMPLE.get(name)) is not None:
        flags, valued, operands, why, harsh = found
        wrapped = _options(words, flags, valued, operands)
        wrapped.why, wrapped.harsh = wrapped.why or why, harsh
        if name in _KEYWORDS:
            wrapped.inner += [rest for inner in wrapped.inner if (rest := _negated(inner))]
        return wrapped
    if (reader := _OTHERS.get(name)) is not None:
        return reader(words)
    return None


_SIMPLE: Final[dict[str, tuple[str, str, int, str | None, bool]]] = {
    # flags, flags with a value, operands before the command, what the wrapper does itself, asks in `auto`
    "nice": ("", "n", 0, None, False),
    "nohup": ("", "", 0, "leaves a command running", False),
    "time": ("p", "", 0, None, False),
    "timeout": ("fvp", "ks", 1, None, False),
    "stdbuf": ("", "ioe", 0, None, False),
    "ionice": ("t", "cn", 0, None, False),
    "setsid": ("cfw", "", 0, "leaves a command running", False),
    "builtin": ("", "", 0, None, False),
    "exec": ("cl", "a", 0, "replaces the shell", False),
    "sudo": ("AbEeHnPSsiK", "ugpCcrtThDR", 0, "asks for other rights", True),
    "doas": ("ns", "uC", 0, "asks for other rights", True),
    "pkexec": ("", "", 0, "asks for other rights", True),
    "runuser": ("lm", "ugGcs", 0, "asks for other rights", True),
    "su": ("lmp", "cgGsw", 0, "asks for other rights", True),
    "chroot": ("", "", 1, "changes the root of the file system", True),
    "unshare": ("mnpuUirfCT", "RSG", 0, "changes what is confined", True),
    "nsenter": ("", "", 0, "changes what is confined", True),
    "strace": ("fqcCrTttvxy", "eopsPuaEIOS", 0, "watches another command", False),
    "coproc": ("", "", 0, "leaves a command running", False),
    "busybox": ("", "", 0, None, False),
    "toybox": ("", "", 0, None, False),
    "flock": ("sxunFo", "wcE", 1, "writes a lock file", False),
    "script": ("aefq", "cmIOBETo", 0, "writes what it sees to a file", False),
}


_KEYWORDS: Final = frozenset({"time", "coproc"})
"""Of those, the ones that are no programs but part of the shell's own grammar."""


def _negated(words: tuple[Word, ...]) -> tuple[Word, ...] | None:
    """The command behind a `!`, which the parser takes for the name of a program."""
    if words[0].value != "!":
        return None
    return tuple(dropwhile(lambda word: word.value == "!", words)) or None


def _options(words: Sequence[Word], flags: str, valued: str, operands: int) -> Wrapped:
    """Skip a wrapper's own options and operands; the rest is its command."""
    wrapped, at = Wrapped(), 1
    while at < len(words):
        text = words[at].value
        if text is None:
            wrapped.opaque = "runs a command that only the shell knows"
            return wrapped
        if text == "--":
            at += 1
            break
        if not text.startswith("-") or text == "-":
            break
        if text.startswith("--"):  # one may name a file to write, as `time --output=FILE` does
            wrapped.why = f"has {text}, whose meaning is not known"
            at += 1
            continue
        letters = text[1:]
        first = next((i for i, letter in enumerate(letters) if letter in valued), None)
        if letters.lstrip("-").replace(".", "").isdigit() or (first is None and set(letters) <= set(flags)):
            at += 1
        elif first is not None and set(letters[:first]) <= set(flags):
            at += 2 if first == len(letters) - 1 else 1
        else:
            wrapped.why = f"has {text}, whose meaning is not known"
            at += 1
    at += operands
    if at < len(words):
        wrapped.inner.append(tuple(words[at:]))
        if wrapped.why is not None:  # where the command begins is a guess: whichever word it is, it is judged
            wrapped.inner += [tuple(words[start:]) for start in range(at + 1, min(len(words), at + 8))]
    return wrapped


def _env(words: Sequence[Word]) -> Wrapped:
    wrapped, at = Wrapped(), 1
    while at < len(words):
        text = words[at].value
        if text is None:
            wrapped.opaque = "runs a command that only the shell knows"
            return wrapped
        name, equals, value = text.partition("=")
        if text in ("-i", "-", "--ignore-environment", "-0", "--null"):
            at += 1
        elif text in ("-u", "--unset"):
            at += 2
        elif text == "--":
            at += 1
        elif text.startswith("-"):
            wrapped.why = f"has {text}, which changes how the command is found or read"
            if text.startswith(("-S", "--split-string", "-vS")):
                wrapped.opaque = "splits a text into a command by rules of its own"
                return wrapped
            at += 2 if text in ("-C", "--chdir") else 1
        elif equals and re.fullmatch(r"[A-Za-z_]\w*", name):
            wrapped.assigned.append((name, Word(words[at].source, value)))
            at += 1
        else:
            break
    if at < len(words):
        wrapped.inner.append(tuple(words[at:]))
    else:
        wrapped.why = "shows the environment"
    return wrapped


def _command(words: Sequence[Word]) -> Wrapped:
    if len(words) > 1 and words[1].value in ("-v", "-V"):
        return Wrapped()
    return _options(words, "p", "", 0)


def _xargs(words: Sequence[Word]) -> Wrapped:
    wrapped = _options(words, "0rtpx", "EIdLnPs", 0)  # -a reads a file, wherever that is
    if not wrapped.inner and wrapped.opaque is None:
        wrapped.inner.append((Word("echo", "echo"),))
    wrapped.inner = [(*inner, UNKNOWN) for inner in wrapped.inner]
    return wrapped


def _find(words: Sequence[Word]) -> Wrapped | None:
    wrapped = Wrapped()
    at = 1
    while at < len(words):
        if words[at].value in ("-exec", "-execdir", "-ok", "-okdir"):
            inner: list[Word] = []
            at += 1
            while at < len(words) and words[at].value not in (";", "+"):
                word = words[at]
                inner.append(Word(word.source, None) if "{}" in (word.value or "") else word)
                at += 1
            if inner:
                wrapped.inner.append(tuple(inner))
                wrapped.why = "runs a command for what it finds"
        at += 1
    return wrapped if wrapped.inner else None


def _shell(name: str, words: Sequence[Word]) -> Wrapped | None:
    at, wrapped = 1, Wrapped()
    while at < len(words):
        text = words[at].value
        if text is None:
            return Wrapped(opaque=f"gives `{name}` what only the shell knows")
        if not text.startswith(("-", "+")) or text in ("-", "--"):
            break
        if text.startswith("--"):
            wrapped.why = f"has {text}, which changes what the shell reads"
            at += 2 if text in ("--rcfile", "--init-file") else 1
            continue
        if set(text[1:]) & set("ilsO"):
            wrapped.why = f"has {text}, which changes what the shell reads"
        if "c" in text[1:] and text[0] == "-":
            return _shell_text(name, words[at + 1 :], wrapped)
        at += 2 if text[-1:] in "oO" else 1
    return None if at < len(words) and words[at].value not in ("-", "--") else wrapped


def _shell_text(name: str, rest: Sequence[Word], wrapped: Wrapped) -> Wrapped:
    rest = list(rest)
    while rest and (rest[0].value or "").startswith(("-", "+")):
        wrapped.why = f"has {rest[0].source}, which changes what the shell reads"
        rest = rest[1:]
    if not rest or rest[0].plain is None:
        return Wrapped(opaque=f"gives `{name} -c` a text that is made while it runs")
    wrapped.lines.append(rest[0].plain)
    return wrapped


def _eval(words: Sequence[Word]) -> Wrapped:
    if any(word.plain is None for word in words):
        return Wrapped(opaque="runs a text that is made while it runs")
    return Wrapped(lines=[" ".join(word.plain or "" for word in words[1:])])


def _watch(words: Sequence[Word]) -> Wrapped:
    found = _options(words, "bcdegprtwx", "nq", 0)
    if found.opaque is not None or not found.inner:
        return found
    if any(word.plain is None for word in found.inner[0]):
        return Wrapped(opaque="runs a text that is made while it runs")
    return Wrapped(lines=[" ".join(word.plain or "" for word in found.inner[0])], why=found.why)


def _parallel(words: Sequence[Word]) -> Wrapped:
    inner = tuple(words[1:])
    found = [(*inner[start:], UNKNOWN) for start in range(min(len(inner), 8))]
    return Wrapped(inner=found, why="runs a command on what it is given")


def _trap(words: Sequence[Word]) -> Wrapped:
    if len(words) < 3:
        return Wrapped(why="changes what later commands do")
    if words[1].plain is None:
        return Wrapped(opaque="runs a text that is made while it runs")
    return Wrapped(lines=[words[1].plain] if words[1].plain not in ("-", "") else [], why="runs a text later")


def _ssh(words: Sequence[Word]) -> Wrapped:
    return Wrapped(opaque="runs a command on another machine")


_OTHERS: Final[dict[str, Callable[[Sequence[Word]], Wrapped | None]]] = {
    "env": _env,
    "command": _command,
    "xargs": _xargs,
    "find": _find,
    "eval": _eval,
    "watch": _watch,
    "parallel": _parallel,
    "trap": _trap,
    "ssh": _ssh,
}
RUNNERS: Final[dict[str, tuple[str, ...]]] = {
    "uv": ("run",),
    "poetry": ("run",),
    "pdm": ("run",),
    "pipenv": ("run",),
    "hatch": ("run",),
    "rye": ("run",),
    "bundle": ("exec",),
    "npx": (),
    "bunx": (),
    "pnpx": (),
    "uvx": (),
}
"""Programs that run another of the project's environment, named by the words behind these."""
