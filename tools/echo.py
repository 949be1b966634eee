"""The hunks of a diff as the model sees them."""

from typing import Final

from tools.text import visible

ECHO_LINES: Final = 80
ECHO_CHARACTERS: Final = 6_000
"""How much of the resulting diff the model sees."""


def echo(diff: str) -> str:
    """The hunks of a diff, bounded, for the model."""
    lines = [visible(line.removesuffix("\r"), 400) for line in diff.split("\n")[2:]]
    shown: list[str] = []
    size = 0
    for line in lines[:ECHO_LINES]:
        size += len(line) + 1
        if size > ECHO_CHARACTERS:
            break
        shown.append(line)
    rest = len(lines) - len(shown)
    return "\n".join(shown).rstrip("\n") + (f"\n… {rest} more lines of diff" if rest else "")
