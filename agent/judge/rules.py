"""Rules: the words a simple command begins with, which a person allowed (or forbade) for good."""

import re
import shlex
from collections.abc import Sequence
from typing import Final

from agent.judge import git as gits
from agent.judge.effects import NO_RULE, runs_code
from agent.judge.names import names
from agent.judge.places import Places
from agent.judge.reading import PROGRAMS, refused_flag
from agent.judge.words import Word
from agent.judge.wrappers import INTERPRETERS, RUNNERS
from agent.rule import COMMAND

Rule = tuple[str, ...]

_PROGRAM: Final = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_.+/-]*", re.ASCII)
_SCRIPTED: Final = names("npm pnpm yarn")
_TARGETED: Final = names("make just task rake gmake ninja")
_SUBCOMMANDS: Final = names(
    "cargo go uv pip pip3 poetry pdm hatch dotnet gradle mvn bundle rails composer terraform cmake "
    "bazel nx turbo ./gradlew ./mvnw etude"
)
_MODULES_REFUSED: Final = names("code pdb timeit runpy trace cProfile profile asyncio pip http")
_EXECUTING: Final = names(
    "--eval --exec -exec -toolexec --toolexec -vettool --config --script-shell --pre "
    "--use-compress-program --to-command --compress-program --checkpoint-action --shell --rsh "
    "--python-executable --node-options --require --import --loader --file --makefile --directory -f "
    "-C -E -W -I -c"
)
"""Flags that can make another program of a known one; a rule allows them only where it names them."""
_EXECUTING_SHORT: Final = frozenset({"-f", "-C", "-E", "-W", "-I", "-c"})
"""Of those, the ones that mean so only to `_TARGETED` programs."""
_TARGETED_SHORT: Final = "fCEWIcdetr"
"""Letters of short flags, also of several in one word, that name another file, folder or code to those."""

_CODE_SHORT: Final = {
    **dict.fromkeys(names("eslint jest webpack rollup vite vitest stylelint karma"), "c"),
    **dict.fromkeys(names("mocha nyc ts-node ava tap"), "r"),
    **dict.fromkeys(names("pytest py.test"), "cp"),
}
"""Letters of short flags by which these programs are told what else to run."""


def stored(rule: Rule) -> str:
    """A rule as the log keeps it."""
    return COMMAND + shlex.join(rule)


def read(text: str) -> Rule:
    """A rule about commands from the log or a configuration (`git log`, `git *`).

    Raises:
        ValueError: a quotation in it does not end, or it is empty.
    """
    words = shlex.split(text.removeprefix(COMMAND))
    while words and words[-1] == "*":
        words.pop()
    if not words:
        raise ValueError(f"{text!r} names no command")
    return tuple(words)


def offered(words: Sequence[Word], places: Places) -> Rule | None:
    """The rule that an "always" on this command makes; None where none would be safe."""
    first = words[0].plain
    if first is None or not _PROGRAM.fullmatch(first):
        return None
    name = first.rpartition("/")[2]
    if "/" in first:
        inside = places.home and places.where(words[0]) == "inside" and not first.startswith("/")
        return (first,) if inside and name not in NO_RULE and not INTERPRETERS.fullmatch(name) else None
    if name == "git":
        git = gits.read(words, places)
        plain = git.name is not None and not git.before and git.strange is None and git.name not in gits.NEVER
        return (first, git.name) if plain and git.name and not git.name.startswith("-") else None
    if INTERPRETERS.fullmatch(name):
        return _interpreted(words, places)
    if name in NO_RULE:
        return None
    second, third = (_plain_word(words, 1), _plain_word(words, 2))
    if (between := RUNNERS.get(name)) is not None and (not between or (second,) == between):
        inner = words[1 + len(between) :]
        rule = offered(inner, places) if inner and inner[0].plain is not None else None
        return (first, *between, *rule) if rule is not None else None
    if name in _SCRIPTED:
        if second in ("exec", "x", "dlx", None):
            return None
        return (first, second, third) if second == "run" and third else (first, second)
    if name in _TARGETED:
        return (first, second) if second and "=" not in second else None
    if name in _SUBCOMMANDS:
        return (first, second) if second else None
    return (first, second) if second and second.islower() and second.isidentifier() else (first,)


def covers(rule: Rule, words: Sequence[Word], places: Places) -> bool:
    """Whether a rule allows a command: it begins with the rule's words, and what follows is harmless."""
    if len(words) < len(rule) or any(word.plain != text for word, text in zip(words, rule, strict=False)):
        return False
    rest, name = words[len(rule) :], rule[0].rpartition("/")[2]
    if "/" in rule[0] and not places.home:
        return False
    if places.strays(rest) is not None:
        return False
    if name == "git":
        git = gits.read(words, places)
        if git.strange is not None or gits.refused_flag(git) is not None:
            return False
        return len(rule) > 1 or git.name not in gits.NEVER
    if (known := PROGRAMS.get(name)) is not None and refused_flag(known, rest) is not None:
        return False
    if INTERPRETERS.fullmatch(name) and len(rule) == 1 and runs_code(name, words):
        return False
    if name in _TARGETED and any("=" in (word.value or "") for word in rest):
        return False
    letters = "".join(_CODE_SHORT.get(part, "") for part in rule)
    return not any(_executes(word, name, letters) for word in rest)


def forbids(rule: Rule, words: Sequence[Word], places: Places) -> bool:
    """Whether a forbidden command is meant, by whatever path and with whatever options before it."""
    texts = [word.value for word in words if word.value is not None]
    if not texts or words[0].value is None:
        return False
    texts[0] = texts[0].rpartition("/")[2] if "/" not in rule[0] else texts[0]
    if texts[0] == "git" and rule[0] == "git":
        git = gits.read(words, places)
        texts = ["git", git.name or "", *(word.value or "" for word in git.arguments)]
    if texts[: len(rule)] == list(rule):
        return True
    if texts[0] != rule[0] or len(rule) == 1:
        return False
    plain = [text for text in texts[1:] if not text.startswith("-")]
    wanted = [text for text in rule[1:] if not text.startswith("-")]
    flags = {text for text in rule[1:] if text.startswith("-")}
    return plain[: len(wanted)] == wanted and flags <= set(texts)


def _executes(word: Word, name: str, letters: str) -> bool:
    flag = (word.value or "").partition("=")[0]
    if flag.startswith("-") and not flag.startswith("--"):
        letters += _TARGETED_SHORT if name in _TARGETED else ""
        return bool(set(flag[1:]) & set(letters)) or (flag in _EXECUTING and flag not in _EXECUTING_SHORT)
    return flag in _EXECUTING


def _interpreted(words: Sequence[Word], places: Places) -> Rule | None:
    texts = [word.plain for word in words[:3]]
    if not (texts[0] or "").startswith(("python", "pypy")) or len(texts) < 2 or texts[1] is None:
        return None
    if texts[1] == "-m":
        module = texts[2] if len(texts) > 2 else None
        return (str(texts[0]), "-m", module) if module and module not in _MODULES_REFUSED else None
    if texts[1].startswith("-") or not places.home or places.where(words[1]) != "inside":
        return None
    return str(texts[0]), texts[1]


def _plain_word(words: Sequence[Word], at: int) -> str | None:
    text = words[at].plain if at < len(words) else None
    return text if text and not text.startswith(("-", "/", ".")) and "=" not in text else None
