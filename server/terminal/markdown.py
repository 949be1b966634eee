"""Markdown as it streams: headings, emphasis, code; painted at once, never rewritten.

Every character is shown, marks included. Characters are shown as soon as their meaning is certain;
only a run of marks (`*`, backticks, `#`) at the end of what came so far is held back.
"""

import re
from collections.abc import Callable

from server.terminal.style import Style, clean

_MARKS = re.compile(r"(`+|\*\*)")
_OPEN = re.compile(r"(?:`+|\*+)$|^\s{0,3}(?:#{1,6}|`+)?$")


class MarkdownStream:
    """Feed it pieces of a message; it writes them painted. Without colour the text is unchanged."""

    def __init__(self, write: Callable[[str], None], style: Style) -> None:
        self._write, self._style = write, style
        self._held = ""
        self._fence = False
        self._begin_line()

    def feed(self, text: str) -> None:
        text = clean(text)
        if not self._style.enabled:
            self._write(text)
            return
        self._held += text
        while "\n" in self._held:
            line, self._held = self._held.split("\n", 1)
            self._show(line)
            self._write("\n")
            self._begin_line()
        pattern = _OPEN.search(self._held) if self._line_start else re.search(r"(?:`+|\*+)$", self._held)
        ready = self._held[: pattern.start()] if pattern else self._held
        self._held = self._held[len(ready) :]
        self._show(ready)

    def finish(self) -> None:
        """Show what was held back and forget the state: the next message starts anew."""
        self._show(self._held)
        self._held = ""
        self._begin_line()
        self._fence = False

    def _begin_line(self) -> None:
        self._line_start, self._whole_line, self._bold, self._code = True, "", False, 0
        self._last = " "

    def _show(self, text: str) -> None:
        if not text:
            return
        if self._line_start:
            self._line_start = False
            if text.lstrip().startswith("```"):
                self._fence = not self._fence
                self._whole_line = "2"
            elif self._fence:
                self._whole_line = "36"
            elif re.match(r"\s{0,3}#{1,6}\s", text):
                self._whole_line = "1"
        if self._whole_line:
            self._write(self._style.paint(self._whole_line, text))
            return
        parts = [part for part in _MARKS.split(text) if part]
        for part, following in zip(parts, [*parts[1:], " "], strict=True):
            self._part(part, following[0])
            self._last = part[-1]

    def _part(self, part: str, following: str) -> None:
        if part == "**" and not self._code:
            if self._bold and not self._last.isspace():
                self._write(self._style.bold(part))
                self._bold = False
                return
            self._bold = self._bold or not following.isspace()
        elif part[0] == "`" and self._code in (0, len(part)):
            self._write(self._style.cyan(part))
            self._code = 0 if self._code else len(part)
            return
        self._write(self._style.cyan(part) if self._code else self._style.bold(part) if self._bold else part)
