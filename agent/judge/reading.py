"""Programs that are known to only read, and with which arguments they do."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agent.judge.names import names
from agent.judge.places import Places
from agent.judge.words import Word

_VERSION: Final = names(
    "python python3 node npm npx git cargo rustc go java gcc g++ clang make cmake ruby perl php uv "
    "pip pip3 ruff pytest mypy pyright tsc deno bun pnpm yarn"
)


@dataclass(frozen=True, slots=True)
class Reading:
    """What a program may be given so that it only reads.

    `flags`: the only short flags allowed (None: all but `not_short`); `not_long`: long ones that do more than
    read, also abbreviated. `skip`: leading arguments that are no paths, unless a flag of `instead` is given.
    `at_most`: operands, where one more would be written. `free`: arguments of any kind cannot hurt.
    """

    flags: str | None = None
    not_short: str = ""
    not_long: frozenset[str] = frozenset()
    skip: int = 0
    instead: str = ""
    at_most: int | None = None
    free: bool = False

    @property
    def careful(self) -> bool:
        """Whether some flag does more than read."""
        return self.flags is not None or bool(self.not_short or self.not_long)


_ANY: Final = Reading()
_FREE: Final = Reading(free=True)

PROGRAMS: Final[dict[str, Reading]] = {
    **dict.fromkeys(
        names(
            "cat head tail nl stat df basename dirname realpath readlink cut comm cmp "
            "tac rev paste fold fmt expand unexpand od hexdump strings column cal"
        ),
        _ANY,
    ),
    "ls": Reading(not_short="LH", not_long=frozenset({"--dereference", "--dereference-command-line"})),
    **dict.fromkeys(
        names("cksum md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum"),
        Reading(not_short="c", not_long=frozenset({"--check"})),  # the list says what is read
    ),
    **dict.fromkeys(
        names("echo true false : [ pwd seq whoami uname id nproc sleep exit type which tr"),
        _FREE,
    ),
    "printf": Reading(free=True, not_short="v"),
    "test": Reading(free=True, not_short="vR"),
    "wc": Reading(not_long=frozenset({"--files0-from"})),
    "du": Reading(
        not_short="LDHX",
        not_long=frozenset({"--files0-from", "--dereference", "--dereference-args", "--exclude-from"}),
    ),
    "date": Reading(not_short="sf", not_long=frozenset({"--set", "--file"}), skip=1),
    "grep": Reading(not_short="R", not_long=frozenset({"--dereference-recursive"}), skip=1, instead="ef"),
    "egrep": Reading(not_short="R", not_long=frozenset({"--dereference-recursive"}), skip=1, instead="ef"),
    "fgrep": Reading(not_short="R", not_long=frozenset({"--dereference-recursive"}), skip=1, instead="ef"),
    "rg": Reading(
        not_short="Lz",
        not_long=frozenset({"--pre", "--pre-glob", "--hostname-bin", "--follow", "--search-zip"}),
        skip=1,
        instead="ef",
    ),
    "sort": Reading(
        not_short="oT",
        not_long=frozenset({"--output", "--compress-program", "--temporary-directory", "--files0-from"}),
    ),
    # Below folders it follows links.
    "diff": Reading(not_short="lr", not_long=frozenset({"--paginate", "--recursive"})),
    "file": Reading(not_short="Czf", not_long=frozenset({"--compile", "--uncompress", "--files-from"})),
    "uniq": Reading(at_most=1),
    "xxd": Reading(not_short="r", not_long=frozenset({"--revert"}), at_most=1),
    "tree": Reading(not_short="oRl", not_long=frozenset({"--output"})),
    "jq": Reading(not_short="L", not_long=frozenset({"--library-path"}), skip=1, instead="f"),
}

_FIND_REFUSED: Final = re.compile(
    r"-(exec|execdir|ok|okdir|delete|fprint|fprint0|fprintf|fls|follow|files0-from|L)"
)
_SED_FLAGS: Final = re.compile(r"-(n|E|r|e|s|z|u|nE|nr|En|rn|ne|Ee|re|nEe|nre|-quiet|-silent|-expression)")
_ADDRESS: Final = r"(?:\d+|\$|/(?:[^/\\\n]|\\.)*/I?|\+\d+)"
_SED_COMMAND: Final = re.compile(
    rf"\s*(?:{_ADDRESS}(?:\s*,\s*{_ADDRESS})?)?\s*!?\s*"
    r"(?:[pdq=]|s(?P<d>[/|,#])(?:(?!(?P=d))[^\\\n]|\\.)*(?P=d)(?:(?!(?P=d))[^\\\n]|\\.)*(?P=d)[gpiI0-9]*)?\s*"
)
_READS_MORE: Final = {"date": re.compile(r"[\d.]+"), "jq": re.compile(r".*\b(import|include)\b.*", re.DOTALL)}
"""Operands with which a program does more than read what is named: the clock is set, files are read."""
_AWK_REFUSED: Final = re.compile(
    r"SYMTAB|FUNCTAB|system|getline|ARGV|ARGC|ENVIRON|PROCINFO|fflush|close|extension|[|>@\\]"
)


def why_not(program: str, words: Sequence[Word], places: Places) -> str | None:
    """None if a command only reads, and only in the workspace; else what stands against it."""
    arguments = words[1:]
    if program in _VERSION and [word.plain for word in arguments] in (["--version"], ["-V"]):
        return None if program != "node" or arguments[0].plain == "--version" else "is not known to only read"
    if program == "find":
        return _find(arguments, places)
    if program == "sed":
        return _sed(arguments, places)
    if program == "awk":
        return _awk(arguments, places)
    known = PROGRAMS.get(program)
    if known is None:
        return "is not known to only read"
    if (more := _READS_MORE.get(program)) and any(more.fullmatch(word.value or "") for word in arguments):
        return "may do more than read what is named"
    if (flag := refused_flag(known, arguments)) is not None:
        return f"has {flag}, which does more than read"
    operators = {"test": arguments, "printf": arguments[:1]}.get(program, ())
    if any(word.value is None or word.glob for word in operators):
        return "has arguments that may turn out to be operators"
    if known.free:
        return None
    operands = [word for word in arguments if not _is_flag(word)]
    if known.at_most is not None and (len(operands) > known.at_most or any(word.glob for word in operands)):
        return "may write to its second file"
    skipped = 0 if _given(known.instead, arguments) else known.skip
    patterns = operands[:skipped]
    if any(word.value is None or word.glob for word in patterns):
        return "has arguments that only the shell knows"
    return _leads_out([word for word in arguments if not any(word is one for one in patterns)], places)


def refused_flag(known: Reading, arguments: Sequence[Word]) -> str | None:
    """The first flag with which a program does more than read."""
    ended = False
    for word in arguments:
        if ended and not known.free:
            return None
        if word.stream:
            continue
        if word.value is None or (word.glob and word.source[:1] in "*?["):
            if known.careful and not (known.free and word.source[:1] == '"' and word.value is None):
                return "an argument that may turn out to be a flag"
            continue
        ended = ended or word.value == "--"
        if word.value.startswith("--"):
            name = word.value.partition("=")[0]
            if any(flag == name or (len(name) > 2 and flag.startswith(name)) for flag in known.not_long):
                return name
        elif word.value.startswith("-") and len(word.value) > 1:
            if known.flags is not None and not set(word.value[1:]) <= set(known.flags):
                return word.value
            if set(word.value[1:]) & set(known.not_short):
                return word.value
    return None


def _is_flag(word: Word) -> bool:
    return word.value is not None and word.value.startswith("-") and word.value != "-"


def _given(flags: str, arguments: Sequence[Word]) -> bool:
    long = {"e": "--regexp", "f": "--file"}
    return any(
        word.value is not None
        and (
            (word.value[:1] == "-" and word.value[:2] != "--" and bool(set(word.value[1:]) & set(flags)))
            or word.value.partition("=")[0] in {long[flag] for flag in flags if flag in long}
            or (word.value == "--files" and "f" in flags)
            or (word.value == "--from-file" and "f" in flags)
        )
        for word in arguments
    )


def _leads_out(words: Sequence[Word], places: Places) -> str | None:
    found = places.strays(words)
    if found is None:
        return None
    where, word = found
    if where == "unknown":
        return f"has an argument, {word.source[:60]}, that may be anything"
    return f"reads outside the workspace: {word.source[:80]}"


def _find(arguments: Sequence[Word], places: Places) -> str | None:
    for word in arguments:
        if word.value is None or word.glob:
            return "has arguments that only the shell knows"
        if _FIND_REFUSED.fullmatch(word.value):
            return f"has {word.value}, which does more than read"
    return _leads_out(arguments, places)


def _sed(arguments: Sequence[Word], places: Places) -> str | None:
    scripts, files, expected = [], [], False
    for word in arguments:
        if word.value is None or (word.glob and word.source[:1] in "*?["):
            return "has arguments that only the shell knows"
        if expected:
            scripts.append(word.value)
            expected = False
        elif word.value.startswith("-") and word.value != "-":
            name, _, value = word.value.partition("=")
            if not _SED_FLAGS.fullmatch(name):
                return f"has {name}, which may do more than read"
            expected = (name.endswith("e") and not name.startswith("--")) or (
                name == "--expression" and not value
            )
            scripts += [value] if value else []
        else:
            files.append(word)
    if not scripts and files:
        scripts.append(files.pop(0).value or "")
    for script in scripts:
        if not all(_SED_COMMAND.fullmatch(part) for part in script.split(";")):
            return "has a script that is not known to only read"
    return _leads_out(files, places)


def _awk(arguments: Sequence[Word], places: Places) -> str | None:
    rest = list(arguments)
    while rest and rest[0].value is not None and re.fullmatch(r"-F.*", rest[0].value, re.DOTALL):
        rest = rest[2:] if rest[0].value == "-F" else rest[1:]
    if not rest or rest[0].plain is None or rest[0].plain.startswith("-"):
        return "has a program that cannot be read"
    if found := _AWK_REFUSED.search(rest[0].plain):
        return f"has a program that may do more than read ({found.group()!r})"
    if any(word.glob and word.source[:1] in "*?[" for word in rest[1:]):
        return "has arguments that only the shell knows"
    if any((word.value or "-").startswith("-") for word in rest[1:]):
        return "has arguments that may be more programs"
    return _leads_out(rest[1:], places)
