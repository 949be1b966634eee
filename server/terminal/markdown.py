"""Markdown as it streams: headings, emphasis, code; shown at once, never rewritten.

Characters are shown as soon as their meaning is certain; only a run of marks (`*`, backticks, `#`)
at the end of what came so far is held back.
"""

import re
from collections.abc import Callable

from server.terminal.style import Style, clean

_MARKS = re.compile(r"(`+|\*\*)")
_OPEN = re.compile(r"(?:`+|\*+|#{1,6}\s?|\s{1,3})$")


class MarkdownStream:
    """Feed it pieces of a message; it writes them painted. Without colour the text is unchanged."""

    def __init__(self, write: Callable[[str], None], style: Style) -> None:
        self._write, self._style = write, style
        self._held = ""
        self._line_start = True
        self._fence = False
        self._heading = self._bold = self._code = False

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
            self._end_line()
        tail = _OPEN.search(self._held)
        ready = self._held[: tail.start()] if tail else self._held
        if ready:
            self._held = self._held[len(ready) :]
            self._show(ready)

    def finish(self) -> None:
        """Show what was held back and forget the state: the next message starts anew."""
        if self._held:
            self._show(self._held)
        self._held = ""
        self._end_line()
        self._fence = False

    def _end_line(self) -> None:
        self._line_start, self._heading, self._bold, self._code = True, False, False, False

    def _show(self, text: str) -> None:
        if self._line_start:
            self._line_start = False
            if text.lstrip().startswith("```"):
                self._fence = not self._fence
                self._write(self._style.dim(text))
                return
            self._heading = not self._fence and bool(re.match(r"#{1,6}\s", text))
        if self._fence:
            self._write(self._style.cyan(text))
            return
        for part in _MARKS.split(text):
            if part == "**" and not self._code:
                self._bold = not self._bold
            elif part.startswith("`"):
                self._code = not self._code
            elif self._code:
                self._write(self._style.cyan(part))
            elif self._bold or self._heading:
                self._write(self._style.bold(part))
            else:
                self._write(part)
