"""One word of a command line: what it is after quoting, or that only the shell can tell.

The quoting is read here a second time, apart from the parser: where both disagree on where a word ends,
the line cannot be judged.
"""

import re
from dataclasses import dataclass
from typing import Final

_META: Final = frozenset(" \t\n;|&<>()")
_SAFE_SPECIAL: Final = frozenset("?#$!")
_ESCAPES: Final = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip
_ANSI: Final = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|(.))", re.DOTALL
)
_BRACES: Final = re.compile(r"\{.*(?:,|\.\.).*\}", re.DOTALL)


class Unreadable(Exception):
    """The text cannot be read as the shell would. The message says what stands in the way."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word. `value` is what the program gets; None if an expansion decides that.

    `glob`: an unquoted pattern, which becomes the names of files. `tilde`: the shell puts a home folder in
    place. `stream`: a `<(…)`, which is only a pipe. `quoted`: some of it was quoted.
    """

    source: str
    value: str | None
    glob: bool = False
    tilde: bool = False
    stream: bool = False
    quoted: bool = False

    @property
    def plain(self) -> str | None:
        """Its text where that is exactly what the program gets."""
        return None if self.glob or self.tilde else self.value


UNKNOWN: Final = Word("…", None)
"""A word that somebody adds while the command runs."""


def read_word(source: str) -> Word:
    """Read one word as bash does.

    Raises:
        Unreadable: it is more than one word, or ends amid a quotation.
    """
    return _Reading(source).word()


class _Reading:
    def __init__(self, source: str) -> None:
        self.source, self.at = source, 0
        self.text: list[str] = []
        self.bare: list[str] = []
        """The unquoted characters, with a letter for each quoted one."""
        self.glob = self.tilde = self.quoted = self.dynamic = False

    def word(self) -> Word:
        while self.at < len(self.source) and not self.dynamic:
            self._unquoted(self.source[self.at])
        if self.dynamic or _BRACES.search("".join(self.bare)):
            return Word(self.source, None, quoted=self.quoted)
        return Word(self.source, "".join(self.text), self.glob, self.tilde, quoted=self.quoted)

    def _unquoted(self, character: str) -> None:
        if character == "\\":
            self._escaped(self.source[self.at + 1 : self.at + 2])
        elif character == "'":
            end = self.source.find("'", self.at + 1)
            if end < 0:
                raise Unreadable("a quotation does not end")
            self._add(self.source[self.at + 1 : end])
            self.at = end + 1
        elif character == '"':
            self._double()
        elif character == "$":
            self._dollar(inside=False)
        elif character == "`":
            self.dynamic = True
        elif character in _META or (character == "#" and self.at == 0):
            raise Unreadable(f"{self.source[:40]!r} is more than one word")
        else:
            self.glob = self.glob or character in "*?["
            if character == "~" and (not self.bare or self.bare[-1] in "=:"):
                self.tilde = True
            self.text.append(character)
            self.bare.append(character)
            self.at += 1

    def _escaped(self, character: str) -> None:
        if not character:
            raise Unreadable("it ends with a backslash")
        if character != "\n":
            self._add(character)
        self.at += 2

    def _double(self) -> None:
        self.quoted, self.at = True, self.at + 1
        while self.at < len(self.source):
            character = self.source[self.at]
            if character == '"':
                self.at += 1
                return
            if character == "\\" and self.source[self.at + 1 : self.at + 2] in tuple('$`"\\\n'):
                self._escaped(self.source[self.at + 1])
            elif character == "$":
                self._dollar(inside=True)
            elif character == "`":
                self.dynamic = True
            else:
                self._add(character)
                self.at += 1
            if self.dynamic:
                return
        raise Unreadable("a quotation does not end")

    def _dollar(self, *, inside: bool) -> None:
        following = self.source[self.at + 1 : self.at + 2]
        if following in _SAFE_SPECIAL and following:
            self._add("0")  # a number, whichever
            self.at += 2
        elif following == "'" and not inside:
            self._ansi()
        elif following and (following.isalnum() or following in "_({[@*-'\""):
            if following in ("'", '"') and inside:
                self._add("$")
                self.at += 1
            else:
                self.dynamic = True
        else:
            self._add("$")
            self.at += 1

    def _ansi(self) -> None:
        end = self.at + 2
        while end < len(self.source) and self.source[end] != "'":
            end += 2 if self.source[end] == "\\" else 1
        if end >= len(self.source):
            raise Unreadable("a quotation does not end")
        body = self.source[self.at + 2 : end]
        try:
            text = _ANSI.sub(_unescape, body)
        except ValueError:
            self.dynamic = True
            return
        self._add(text)
        self.at = end + 1

    def _add(self, text: str) -> None:
        self.quoted = True
        self.text.append(text)
        self.bare.append("q" * max(len(text), 1))


def _unescape(match: re.Match[str]) -> str:
    for group, base in ((1, 16), (2, 16), (3, 16), (4, 8)):
        if digits := match.group(group):
            code = int(digits, base)
            if not 0 < code < 128:
                raise ValueError(digits)
            return chr(code)
    return _ESCAPES[match.group(5)] if match.group(5) in _ESCAPES else _refuse(match.group(5))


def _refuse(letter: str) -> str:
    raise ValueError(letter)
