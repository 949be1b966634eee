"""Putting `new` in the place of text that was found by tolerance, in the file's own terms."""

from tools.indentation import shift_between
from tools.matching import Match, Tier, fold, split
from tools.text import aligned


def rewritten(flat: str, match: Match, tier: Tier, old: str, new: str) -> str | None:
    """The flat text to put in the place of a match of whole lines.

    Lines that `new` shares with `old` stay as the file has them, others are indented as the file is, and
    keep the file's punctuation where only words change. None where a line cannot be moved left that far.
    """
    old_lines, whole = split(old)
    new_lines = split(new)[0] if new else []
    found = flat[match.start : match.end].split("\n")[: len(old_lines)]
    shift = shift_between(old_lines, found, flat, new_lines)
    result: list[str] = []
    for start, end, new_start, new_end in aligned(old_lines, new_lines):
        if old_lines[start:end] == new_lines[new_start:new_end]:
            result += found[start:end]
            continue
        for offset, line in enumerate(new_lines[new_start:new_end]):
            if tier == "punctuation" and start + offset < end:
                line = _transplanted(old_lines[start + offset], line, found[start + offset])
            shifted = shift.apply(line) if shift else None
            if shifted is None:
                return None
            result.append(shifted)
    return "\n".join(result) + "\n" * (whole and bool(result))


def _transplanted(old: str, new: str, found: str) -> str:
    """The change from `old` to `new` made in a line that differs from `old` only in punctuation."""
    ours, theirs = old.strip(), found.strip()
    if len(ours) != len(theirs) or fold(ours) != fold(theirs) or not new.strip():
        return new
    blanks = len(new) - len(new.lstrip())
    pieces = [new[:blanks]]
    for start, end, new_start, new_end in aligned(list(ours), list(new.strip())):
        changed = new.strip()[new_start:new_end]
        pieces.append(theirs[start:end] if ours[start:end] == changed else changed)
    return "".join(pieces)
