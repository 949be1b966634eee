"""The hunks of a diff as the model sees them."""

from typing import Final

from tools.text import visible

ECHO_LINES: Final = 80
ECHO_CHARACTERS: Final = 6_000
"""How much of the resulting diff the model sees."""


def echo(diff: str, share: int = 1) -> str:
    """The hunks of a diff, bounded, for the model; several files of one result share the bound."""
    lines = [visible(line.removesuffix("\r"), 400) for line in diff.split("\n")[2:]]
    shown: list[str] = []
    size = 0
    for line in lines[: max(ECHO_LINES // share, 6)]:
        size += len(line) + 1
        if size > max(ECHO_CHARACTERS // share, 500):
            break
        shown.append(line)
    rest = len(lines) - len(shown)
    return "\n".join(shown).rstrip("\n") + (f"\n… {rest} more lines of diff" if rest else "")
