"""Telling the two forms of a patch apart, and taking off what models wrap around them."""

import re
from typing import Final

from tools.patch.envelope import BEGIN, envelope
from tools.patch.section import BadPatch, Section
from tools.patch.unified import unified

MAX_SECTIONS: Final = 100
MAX_CHARACTERS: Final = 2_000_000

_FENCE: Final = re.compile(r"^(`{3,}|~{3,})[\w+-]*\s*$")
_HEREDOC: Final = re.compile(r"^(?:apply_patch|applypatch|git apply|patch)?\b.*<<-?\s*['\"]?(\w+)['\"]?\s*$")


def parse(text: str) -> list[Section]:
    """The sections of a patch in either form.

    Raises:
        BadPatch: naming the line that cannot be understood.
    """
    if "\0" in text:
        raise BadPatch("A patch cannot hold NUL characters.")
    if len(text) > MAX_CHARACTERS:
        raise BadPatch(f"The patch has {len(text)} characters; the most is {MAX_CHARACTERS}. Split it.")
    lines = list(enumerate(text.split("\n"), 1))
    if lines and not lines[-1][1]:
        lines.pop()
    # A patch that was made CRLF as a whole says nothing about the endings of the file.
    if all(line.endswith("\r") or not line for _, line in lines):
        lines = [(number, line.removesuffix("\r")) for number, line in lines]
    lines = _unwrapped(lines)
    sections = envelope(lines) if any(line.strip() == BEGIN for _, line in lines) else unified(lines)
    if not sections:
        raise BadPatch("The patch changes no file. Give it as *** Begin Patch … or as a unified diff.")
    if len(sections) > MAX_SECTIONS:
        raise BadPatch(f"The patch changes {len(sections)} files; the most is {MAX_SECTIONS}. Split it.")
    return sections


def _unwrapped(lines: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """The lines without blank ones around them, a Markdown fence, a shell's here-document."""
    begin, rest = 0, len(lines)
    while True:
        while begin < rest and not lines[begin][1].strip():
            begin += 1
        end = rest
        while begin < end and not lines[end - 1][1].strip():
            end -= 1
        if end - begin < 2:
            return lines[begin:rest]
        first, last = lines[begin][1].rstrip(), lines[end - 1][1].rstrip()
        fence, heredoc = _FENCE.match(first), _HEREDOC.match(first)
        if not ((fence and last == fence[1]) or (heredoc and last == heredoc[1])):
            return lines[begin:rest]
        begin, rest = begin + 1, end - 1
