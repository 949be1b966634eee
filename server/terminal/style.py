"""Colours and safe text for a terminal."""

import os
import re
from dataclasses import dataclass
from typing import TextIO

_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)


def clean(text: str) -> str:
    """`text` without control sequences: what a model or a command wrote must not drive the terminal."""
    return _CONTROL.sub("", text.replace("\r\n", "\n"))


def one_line(text: str, width: int) -> str:
    """The first line of `text`, cut to `width` characters."""
    line = clean(text).strip().split("\n", 1)[0]
    return line if len(line) <= width else line[: max(1, width - 1)] + "…"


@dataclass(frozen=True, slots=True)
class Style:
    """Paints text, or leaves it as it is."""

    enabled: bool

    @classmethod
    def of(cls, stream: TextIO) -> "Style":
        """Colour for a terminal that wants it: not with `NO_COLOR`, not on a dumb one."""
        wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        return cls(wanted and stream.isatty())

    def paint(self, codes: str, text: str) -> str:
        return f"\x1b[{codes}m{text}\x1b[0m" if self.enabled and text else text

    def bold(self, text: str) -> str:
        return self.paint("1", text)

    def dim(self, text: str) -> str:
        return self.paint("2", text)

    def red(self, text: str) -> str:
        return self.paint("31", text)

    def green(self, text: str) -> str:
        return self.paint("32", text)

    def yellow(self, text: str) -> str:
        return self.paint("33", text)

    def cyan(self, text: str) -> str:
        return self.paint("36", text)
