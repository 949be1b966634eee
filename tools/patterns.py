"""What must stand in a line for a regular expression to match it, read off the expression alone."""

import re
from dataclasses import dataclass
from typing import Final

_SHORTEST: Final = 3
_BOUNDARY: Final = frozenset("bBwWdDsSAz<>")
"""Escapes that stand for no text, or for text not known."""
_CLASS: Final = re.compile(r"\[\^?\]?(?:[^\[\]\\&~-]|\\[^\n]|-)*\]")
"""A class of characters without another one or set operation in it."""
_COUNT: Final = re.compile(r"\{\d+(?:,\d*)?\}")


@dataclass(frozen=True, slots=True)
class Needed:
    """`literals`: UTF-8 of texts of three bytes or more that each match contains. `exact`: the expression is
    the one literal and nothing else."""

    literals: tuple[bytes, ...] = ()
    exact: bool = False


def needed(pattern: str, ignore_case: bool = False) -> Needed:
    """The literals of an expression of Rust's syntax; none where that is not certain.

    With `ignore_case` only ASCII letters are told that have no other case beyond ASCII (k and s have).
    """
    runs = _runs(pattern)
    if runs is None:
        return Needed()
    exact = len(runs) == 1 and not ignore_case and _literal_alone(pattern)
    if ignore_case:
        runs = [piece for run in runs for piece in re.split(r"[^\x00-\x7f]|[kKsS]", run)]
    try:
        literals = tuple(data for run in runs if len(data := run.encode()) >= _SHORTEST)
    except UnicodeEncodeError:
        return Needed()
    return Needed(literals, exact and len(literals) == 1)


def _literal_alone(pattern: str) -> bool:
    return re.search(r"(?<!\\)(?:\\\\)*[.^$*+?{}\[\]()|]|\\[A-Za-z0-9<>]", pattern) is None


def _runs(pattern: str) -> list[str] | None:
    """Texts that every match contains, in order; None where the expression is not understood."""
    runs, run, at, size = [], "", 0, len(pattern)
    while at < size:
        one = pattern[at]
        if one in "|)\n\r]}":
            return None
        taken, ends, after = _piece(pattern, at)
        if after < 0:
            return None
        run, at = run + taken, after
        if at < size and (mark := pattern[at]) in "*?+{":
            found = _COUNT.match(pattern, at) if mark == "{" else None
            if mark == "{" and found is None:
                return None
            at = found.end() if found else at + 1
            if at < size and pattern[at] in "*?+{":
                # Lazy marks are fine; a mark on a mark is read by nobody the same way.
                if pattern[at] != "?":
                    return None
                at += 1
            if mark != "+":
                run = run[: len(run) - len(taken)]
            ends = True
        if ends:
            runs.append(run)
            run = ""
    runs.append(run)
    return [run for run in runs if run]


def _piece(pattern: str, at: int) -> tuple[str, bool, int]:
    """The literal character at a place ("" for anything else), whether a run ends there, what comes next."""
    one = pattern[at]
    if one == "\\":
        if at + 1 == len(pattern):
            return "", True, -1
        escaped = pattern[at + 1]
        if escaped in _BOUNDARY:
            return "", True, at + 2
        if escaped.isalnum() or not escaped.isascii() or escaped in " \n\r":
            return "", True, -1
        return escaped, False, at + 2
    if one in ".^$":
        return "", True, at + 1
    if one == "[":
        found = _CLASS.match(pattern, at)
        return "", True, found.end() if found else -1
    if one == "(":
        return "", True, _group_end(pattern, at)
    if one in "*?+{":
        return "", True, -1
    return one, False, at + 1


def _group_end(pattern: str, at: int) -> int:
    """What comes after a group, whose content may be anything; -1 where it sets flags or is not closed."""
    depth = 0
    while at < len(pattern):
        one = pattern[at]
        if one == "\\":
            at += 2
            continue
        if one == "[":
            found = _CLASS.match(pattern, at)
            if found is None:
                return -1
            at = found.end()
            continue
        if one == "(":
            if pattern.startswith("(?", at) and not pattern.startswith("(?:", at):
                return -1
            depth += 1
        elif one == ")":
            depth -= 1
            if not depth:
                return at + 1
        at += 1
    return -1
