"""What a model is told whose view of a file is out of date: what the file holds now, where it would write."""

from collections.abc import Sequence
from typing import Final

from tools.applying import EditError, Hunk
from tools.contents import Content
from tools.encodings import Binary
from tools.matching import Window, find
from tools.notebook import Notebook
from tools.repair import SHOWN_LINES, nearest, numbered
from tools.text import Text, line_number

STALE_REGIONS: Final = 3


class Stale(EditError):
    """The file is not what the model last saw. `data["seen"]` has the hash of what it is shown now."""


def stale(current: Content, hunks: Sequence[Hunk], now: str) -> Stale:
    try:
        book = Notebook.of(current.path, current.data)
        text = Text.decode(current.data if book is None else book.view.encode("utf-8"))
        regions = [_region(text, hunk) for hunk in hunks[:STALE_REGIONS]]
    except Binary as binary:
        regions = [f"It is now binary ({binary.kind})."]
    shown = "\n…\n".join(dict.fromkeys(region for region in regions if region))
    return Stale(
        f"{current.path} has changed since you last saw it; nothing was written. It is now:\n"
        f"{shown or '(nothing there resembles `old`: read the file)'}\n"
        "If the edit still makes sense, repeat it against this text.",
        failures=[{"reason": "stale"}],
        seen={current.path: now},
    )


def _region(text: Text, hunk: Hunk) -> str:
    flat, old = text.flat, text.normal(hunk.old)
    window = Window(0, len(flat))
    found = find(flat, old, window)
    if len(found.matches) == 1:
        match = found.matches[0]
        first, last = line_number(flat, match.start), line_number(flat, max(match.end - 1, match.start))
        return numbered(flat, max(first - 2, 1), last + 2)
    near = nearest(flat, old, window)
    if near is not None:
        return near.excerpt
    return numbered(flat, 1, SHOWN_LINES) if flat.count("\n") <= SHOWN_LINES else ""
