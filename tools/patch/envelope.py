"""The `*** Begin Patch` form: sections by file name, places by context and anchors, no line numbers."""

import re
from typing import Final

from tools.patch.section import BadPatch, Chunk, Section

BEGIN: Final = "*** Begin Patch"
END: Final = "*** End Patch"
END_OF_FILE: Final = "*** End of File"

_SECTION: Final = re.compile(r"\*\*\* (Add|Delete|Update) File: (.+)")
_MOVE: Final = re.compile(r"\*\*\* Move to: (.+)")
_NUMBERED: Final = re.compile(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@")

Lines = list[tuple[int, str]]


def envelope(lines: Lines) -> list[Section]:
    """The sections of a patch in this form; what stands outside its first and last line is left out.

    Raises:
        BadPatch: naming the line that cannot be understood, or saying that the end is missing.
    """
    first = next(index for index, (_, line) in enumerate(lines) if line.strip() == BEGIN)
    sections: list[Section] = []
    blanks: list[int] = []
    for number, line in lines[first + 1 :]:
        plain = line.rstrip("\r")
        stripped = plain.strip()
        if stripped == END:
            _require_complete(sections)
            return sections
        if found := _SECTION.fullmatch(stripped):
            _require_complete(sections)
            kind, path = found[1].lower(), found[2].strip()
            sections.append(Section(kind, path, number))  # pyright: ignore[reportArgumentType]
            blanks = []
        elif not stripped and not plain.startswith((" ", "\t", "+", "-")):
            blanks.append(number)
        elif not sections:
            raise BadPatch(f"{line[:80]!r} stands before the first file. Begin with *** Update File:", number)
        else:
            _take(sections[-1], number, line, blanks)
            blanks = []
    raise BadPatch(f"The patch has no {END!r} line: it was cut off. Send the whole patch, or a smaller one.")


def _take(section: Section, number: int, line: str, blanks: list[int]) -> None:
    """A line of a section, after blank lines that lack their mark."""
    stripped = line.strip()
    if section.kind == "add":
        if not line.startswith("+"):
            raise BadPatch(f"{line[:80]!r} has no + before it; every line of a new file has one.", number)
        chunk = _chunk(section, number)
        for blank in blanks:
            chunk.add("+", "", blank)
        chunk.add("+", line[1:].removesuffix("\r"), number)
        return
    if section.kind == "delete":
        raise BadPatch(f"{line[:80]!r} follows *** Delete File, which has no lines.", number)
    if found := _MOVE.fullmatch(stripped):
        if section.chunks or section.target is not None:
            raise BadPatch("*** Move to: stands directly below *** Update File:, and once.", number)
        section.target = found[1].strip()
    elif stripped == END_OF_FILE:
        if not section.chunks:
            raise BadPatch(f"{END_OF_FILE} stands below the lines of a place.", number)
        section.chunks[-1].last = True
    elif line.startswith("@@"):
        _anchor(section, number, line.rstrip("\r"))
    elif line[:1] in (" ", "-", "+"):
        chunk = _chunk(section, number)
        for blank in blanks:
            if chunk.old or chunk.new:
                chunk.add(" ", "", blank)
        chunk.add(line[0], line[1:], number)
    else:
        raise BadPatch(
            f"{line[:80]!r} begins with none of ' ', '-', '+', '@@', '***'. Context begins with a space.",
            number,
        )


def _anchor(section: Section, number: int, line: str) -> None:
    last = section.chunks[-1] if section.chunks else None
    if last is None or last.old or last.new:
        last = Chunk(number)
        section.chunks.append(last)
    if found := _NUMBERED.match(line):
        last.line = int(found[1])
    elif anchor := line[2:].strip().removesuffix("@@").strip():
        last.anchors.append(anchor)


def _chunk(section: Section, number: int) -> Chunk:
    if not section.chunks or section.chunks[-1].last:
        section.chunks.append(Chunk(number))
    return section.chunks[-1]


def _require_complete(sections: list[Section]) -> None:
    """A section that says nothing is a mistake, better told than skipped."""
    if not sections:
        return
    section = sections[-1]
    for chunk in section.chunks:
        if not chunk.old and not chunk.new:
            raise BadPatch("This place has no lines. Give context, - and + lines below it.", chunk.number)
    if section.kind == "update" and not section.chunks and section.target is None:
        raise BadPatch(f"Nothing is changed in {section.path}. Give lines, or leave it out.", section.number)
