"""Text of a file as it is: its encoding, its byte-order mark and the line ending of every single line.

Searching and editing happen on the *flat* text, in which every line ends with "\\n" (the last one too, by an
ending that need not exist in the file). Positions of the flat text map back to the file's own text, so what
no edit touches is never rewritten. Line endings are CRLF and LF; a CR alone ends a line only in a file that
has no LF at all (elsewhere it is a character like any other).
"""

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property

from tools.encodings import Encoding, sniff

ALIGN_LIMIT = 1_000_000
"""The most line pairs that are aligned to keep the endings of context lines inside an edit."""

_LONE = re.compile("\r(?!\n)")
"""A CR that is not part of a CRLF."""


@dataclass(frozen=True)
class Text:
    """`body` is the decoded text without the mark, its line endings as in the file."""

    body: str
    encoding: Encoding

    @classmethod
    def decode(cls, data: bytes) -> "Text":
        """The text of a file.

        Raises:
            tools.encodings.Binary: it is no text.
        """
        encoding, body = sniff(data)
        return cls(body, encoding)

    def encode(self, body: str) -> bytes:
        """Bytes of an edited body. Characters beyond the file's own must have passed `encoding.check`."""
        return self.encoding.bom + self.encoding.encode_base(body)

    @cached_property
    def ending(self) -> str:
        """The first line ending of the file: what new lines get."""
        if self._carriage_only:
            return "\r"
        at = self.body.find("\n")
        return "\r\n" if at > 0 and self.body[at - 1] == "\r" else "\n"

    @cached_property
    def flat(self) -> str:
        plain = self.normal(self.body)
        return plain if not plain or plain.endswith("\n") else plain + "\n"

    @cached_property
    def ends_with_newline(self) -> bool:
        return self.body.endswith("\r" if self._carriage_only else "\n")

    def normal(self, text: str) -> str:
        """Any text with this file's notion of line endings, each as "\\n"."""
        if "\r" not in text:
            return text
        if _LONE.search(text) is None:
            return text.replace("\r", "")
        text = "\n".join(text.split("\r\n"))  # faster than replacing two characters by one
        return text.replace("\r", "\n") if self._carriage_only else text

    def position(self, flat: int, known: tuple[int, int] = (0, 0)) -> int:
        """Where a position of the flat text lies in `body`.

        `known` is an earlier position, flat and in `body`, from which counting may start.
        """
        if not self._pairs:
            return min(flat, len(self.body))
        # A CRLF before the position pushes it on by one, which may put more of them before it.
        at = known[1] + flat - known[0]
        counted = known[1]
        while more := self.body.count(self._mark, counted, at):
            counted = at if len(self._mark) == 1 or self.body[at - 1] != "\r" else at - 1
            at += more
        if len(self._mark) == 2 and at and self.body[at - 1 : at + 1] == "\r\n":
            at += 1
        return min(at, len(self.body))

    def with_endings(self, start: int, end: int, own_text: str, replacement: str) -> str:
        """A flat replacement of the flat range, with line endings of the file.

        `own_text` is that range in `body`. Lines that stay keep their ending, a line that takes the place
        of another takes over its ending, and further lines get the file's first ending.
        """
        if not self._pairs and not self._carriage_only:
            return replacement
        own = self._endings(own_text)
        lines = replacement.split("\n")
        if all(ending == self.ending for ending in own):
            return self.ending.join(lines)
        old = self.flat[start:end].split("\n")[: len(own)]
        endings = [self.ending] * (len(lines) - 1)
        for old_start, old_end, new_start, new_end in aligned(old, lines[:-1]):
            for offset in range(min(old_end - old_start, new_end - new_start)):
                endings[new_start + offset] = own[old_start + offset]
        return "".join(line + ending for line, ending in zip(lines, [*endings, ""], strict=True))

    @cached_property
    def _pairs(self) -> int:
        """How many lines end with CRLF."""
        if self._carriage_only:
            return 0
        virtual = bool(self.body) and not self.body.endswith("\n")
        return len(self.body) + virtual - len(self.flat)

    @cached_property
    def _mark(self) -> str:
        """What to count to count CRLFs: one character, which is far faster, where no CR stands alone."""
        return "\r" if self.body.count("\r") == self._pairs else "\r\n"

    @cached_property
    def _carriage_only(self) -> bool:
        return "\n" not in self.body and "\r" in self.body

    def _endings(self, text: str) -> list[str]:
        if self._carriage_only:
            return ["\r"] * text.count("\r")
        return ["\r\n" if line.endswith("\r") else "\n" for line in text.split("\n")[:-1]]


def aligned(old: list[str], new: list[str]) -> list[tuple[int, int, int, int]]:
    """Ranges of old lines and the new lines in their place, in order; equal runs are ranges of their own."""
    if len(old) * len(new) > ALIGN_LIMIT:
        return [(0, len(old), 0, len(new))]
    return [block[1:] for block in SequenceMatcher(None, old, new, autojunk=False).get_opcodes()]


def line_number(flat: str, position: int) -> int:
    """The number, from 1, of the line that a position of a flat text lies in."""
    return flat.count("\n", 0, position) + 1


def line_start(flat: str, position: int) -> int:
    """Where the line begins that a position of a flat text lies in."""
    return flat.rfind("\n", 0, position) + 1


def line_end(flat: str, position: int) -> int:
    """Where the line ends (before its "\\n") that a position of a flat text lies in."""
    end = flat.find("\n", position)
    return len(flat) if end < 0 else end


def split_lines(text: str) -> list[str]:
    """The lines of a text, each with its "\\n" but perhaps the last.

    Other characters that Python takes for line ends are none here.
    """
    *lines, rest = text.split("\n")
    return [line + "\n" for line in lines] + [rest] * bool(rest)


def shortened(text: str, limit: int) -> str:
    """A text of at most `limit` characters, the last of which says that there were more."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def visible(text: str, limit: int | None = None) -> str:
    """A line for showing: control characters and undecodable bytes escaped, the rest verbatim.

    With `limit`, what is left out of a longer line is said as a count.
    """
    cut = "" if limit is None or len(text) <= limit else f"…[{len(text) - limit} more characters clipped]"
    shown = text if not cut else text[:limit]
    if not shown.isprintable():
        shown = "".join(map(_shown, shown))
    return shown + cut


def _shown(character: str) -> str:
    code = ord(character)
    if code == 9 or (code >= 0x20 and not 0x7F <= code < 0xA0 and not 0xD800 <= code < 0xE000):
        return character
    return (
        f"\\x{code - 0xDC00:02x}"
        if 0xDC80 <= code <= 0xDCFF
        else f"\\x{code:02x}"
        if code < 256
        else "\ufffd"
    )
