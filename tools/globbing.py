"""Glob patterns over paths of the workspace, matched in time linear in the path.

`*` and `?` stay within a name, `**` spans folders, `[a-z]` and `[!a-z]` are classes, `{a,b}` and `{1..3}` are
alternatives, a backslash takes the next character as it is. A pattern without a slash matches a name in any
folder. Hidden names match like any other.
"""

import fnmatch
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bracex import ExpansionLimitException, expand

from tools.errors import InvalidArguments

MAX_ALTERNATIVES: Final = 200
MAX_PATTERN: Final = 2_000

_MAGIC: Final = re.compile(r"[*?\[\]\\]")
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)

Part = str | Callable[[str], object] | None
"""A literal name, a test of a name, or None for `**`."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """One pattern without braces. `base` are its leading literal names, `parts` all that is matched."""

    base: tuple[str, ...]
    parts: tuple[Part, ...]

    @property
    def literal(self) -> bool:
        """Whether it names a single path."""
        return len(self.base) == len(self.parts)

    @property
    def name(self) -> str | None:
        """The name, of a pattern that is only a name and matches in any folder."""
        last = self.parts[-1]
        return last if len(self.parts) == 2 and self.parts[0] is None and isinstance(last, str) else None

    def matches(self, names: Sequence[str]) -> bool:
        """Whether the names of a path (its parts) fit; only the last `**` is ever tried again."""
        at = index = 0
        again: tuple[int, int] | None = None
        while at < len(names):
            part = self.parts[index] if index < len(self.parts) else ""
            if part is None:
                again = (index + 1, at)
                index += 1
            elif part == names[at] if isinstance(part, str) else part(names[at]):
                at, index = at + 1, index + 1
            elif again is not None:
                index, at = again[0], again[1] + 1
                again = (index, at)
            else:
                return False
        return all(part is None for part in self.parts[index:])


def patterns(text: str) -> list[Pattern]:
    """The alternatives of a glob.

    Raises:
        InvalidArguments: it has too many of them, or cannot name a file of the workspace.
    """
    if len(text) > MAX_PATTERN:
        raise InvalidArguments(f"The pattern has {len(text)} characters; the most is {MAX_PATTERN}.")
    try:
        alternatives = expand(text, keep_escapes=True, limit=MAX_ALTERNATIVES)
    except ExpansionLimitException as error:
        raise InvalidArguments(
            f"The pattern has more than {MAX_ALTERNATIVES} alternatives in braces. Use a wildcard instead."
        ) from error
    found = [_pattern(alternative) for alternative in dict.fromkeys(alternatives) if alternative.strip("/")]
    if not found:
        raise InvalidArguments("The pattern is empty. Give one such as **/*.py or src/*.{ts,tsx}.")
    return found


def _pattern(text: str) -> Pattern:
    names = [name for name in text.split("/") if name not in ("", ".")]
    if ".." in names:
        raise InvalidArguments("A pattern cannot go up with `..`. Choose the folder with `path`.")
    if "/" not in text.removeprefix("./") and names != ["**"]:
        names.insert(0, "**")
    if text.endswith("/"):
        names.append("**")
    if names[-1:] == ["**"]:
        names.append("*")
    parts: list[Part] = []
    for name in names:
        part = _part(name)
        if part is not None or not parts or parts[-1] is not None:
            parts.append(part)
    base: list[str] = []
    for part in parts:
        if not isinstance(part, str):
            break
        base.append(part)
    return Pattern(tuple(base), tuple(parts))


def _part(name: str) -> Part:
    if name == "**":
        return None
    if not _MAGIC.search(name):
        return name
    if not _MAGIC.search(_ESCAPED.sub("", name)):
        return _ESCAPED.sub(r"\1", name)
    plain = _ESCAPED.sub(lambda found: f"[{found[1]}]" if found[1] in "*?[" else found[1], name)
    # Made by `fnmatch` with groups that never backtrack, so that no pattern takes long on any name.
    return re.compile(fnmatch.translate(plain.replace("[^", "[!"))).match
