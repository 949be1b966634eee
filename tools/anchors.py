"""Where an edit may look: the block that an anchor line names."""

import re
from typing import Final

from tools.errors import InvalidArguments
from tools.indentation import indentation
from tools.matching import Match, Window, fold, split
from tools.text import line_end, line_number, line_start

LISTED: Final = 20

_HEADING: Final = re.compile(r"(#{1,6})\s+\S")
_CLOSING: Final = re.compile(
    r"[\s]*([}\])]|end\b|fi\b|done\b|esac\b|else\b|elif\b|except\b|finally\b|catch\b)"
)
_ATTACHED: Final = ("@", "#", "//", "/*", "*", "--", ";")


class BadAnchor(InvalidArguments):
    """An anchor that no line, or more than one line, of the file answers to."""


class Anchored:
    """The window an anchor opens, and which matches inside it count.

    An anchor that heads a block (deeper lines follow) opens that block with the comments and decorators
    above it. Any other line opens the block around it; there, matches from the anchor on count first.
    """

    def __init__(self, window: Window, line: int, heads: bool) -> None:
        self.window = window
        self.line = line
        self.heads = heads

    def preferred(self, matches: tuple[Match, ...]) -> tuple[Match, ...]:
        if self.heads or len(matches) < 2:
            return matches
        return tuple(match for match in matches if match.start >= self.line) or matches


def anchored(flat: str, anchor: str) -> Anchored:
    """The window of an anchor. Several lines name nested blocks, outermost first.

    Raises:
        BadAnchor: no such line, or several.
    """
    window = Window(0, len(flat))
    lines = [line for line in split(anchor)[0] if line.strip()]
    if not lines:
        raise BadAnchor("The anchor is empty. Give a line of the file, or leave the anchor out.")
    found = Anchored(window, 0, True)
    for line in lines:
        at = _line(flat, line.strip(), found.window)
        found = _block(flat, at)
    return found


def _line(flat: str, anchor: str, window: Window) -> int:
    """The beginning of the one line that is, or else contains, the anchor."""
    whole: list[int] = []
    part: list[int] = []
    for form in dict.fromkeys((anchor, fold(anchor))):
        at = flat.find(form, window.start, window.end)
        while at >= 0:
            start, end = line_start(flat, at), line_end(flat, at)
            line = flat[start:end].strip()
            (whole if line == form or line.rstrip(" :{") == form.rstrip(" :{") else part).append(start)
            at = flat.find(form, end, window.end)
        if whole or part:
            break
    places = whole or part
    if not places:
        raise BadAnchor(
            f"The anchor {anchor!r} is not in the file. Give a line that is there, such as the head of the "
            "function to change, or leave the anchor out.",
            reason="anchor_not_found",
        )
    if len(places) > 1:
        numbers = ", ".join(str(line_number(flat, place)) for place in places[:LISTED])
        more = f" and {len(places) - LISTED} more" if len(places) > LISTED else ""
        raise BadAnchor(
            f"The anchor {anchor!r} is on {len(places)} lines ({numbers}{more}). Give a line that is there "
            "once, or put the head of the enclosing block on a line before it.",
            reason="anchor_ambiguous",
        )
    return places[0]


def _block(flat: str, at: int) -> Anchored:
    line = flat[at : line_end(flat, at)]
    width = _width(line)
    heading = _HEADING.match(line)
    following = _next_line(flat, line_end(flat, at) + 1)
    body = flat[following : line_end(flat, following)]
    braces = line.rstrip().endswith("{") or (_width(body) == width and body.strip() == "{")
    if following < len(flat) and (_width(body) > width or braces):
        return Anchored(
            Window(_attached(flat, at, width), _block_end(flat, following, width, braces)), at, True
        )
    if heading and width == 0:
        section = re.compile(rf"^#{{1,{len(heading.group(1))}}}\s", re.MULTILINE)
        end = section.search(flat, line_end(flat, at))
        return Anchored(Window(at, end.start() if end else len(flat)), at, True)
    head = at
    while head and _width(flat[head : line_end(flat, head)]) >= width:
        head = line_start(flat, head - 1)
        while head and not flat[head : line_end(flat, head)].strip():
            head = line_start(flat, head - 1)
    if width == 0:
        return Anchored(Window(0, len(flat)), at, False)
    outer = _width(flat[head : line_end(flat, head)])
    braces = flat[head : line_end(flat, head)].rstrip().endswith("{")
    return Anchored(Window(head, _block_end(flat, at, outer, braces)), at, False)


def _block_end(flat: str, at: int, width: int, braces: bool) -> int:
    """The end of the lines deeper than `width` from `at` on, with what closes them at that width.

    In a block with braces, lines at the same width (labels, access specifiers) do not end it.
    """
    while at < len(flat):
        end = line_end(flat, at)
        line = flat[at:end]
        if _width(line) <= width and line.strip() != "{":
            if braces and line.lstrip().startswith("}"):
                return end + 1
            if _width(line) < width or not (braces or _CLOSING.match(line)):
                return at
        at = end + 1
    return len(flat)


def _attached(flat: str, at: int, width: int) -> int:
    """The beginning of the comments and decorators directly above a line."""
    while at:
        above = line_start(flat, at - 1)
        line = flat[above : at - 1]
        if _width(line) != width or not line.strip().startswith(_ATTACHED):
            break
        at = above
    return at


def _next_line(flat: str, at: int) -> int:
    """The beginning of the first line from `at` on that is not blank."""
    while at < len(flat) and not flat[at : line_end(flat, at)].strip():
        at = line_end(flat, at) + 1
    return at


def _width(line: str) -> int:
    """Columns of indentation; a blank line is as deep as can be, so that it ends no block."""
    return len(indentation(line).expandtabs(4)) if line.strip() else 1 << 30
