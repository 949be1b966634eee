"""Unified diffs, as git and diff make them and as models write them: numbers and counts may be wrong."""

import re
from typing import Final

from tools.patch.section import BadPatch, Chunk, Section

_HUNK: Final = re.compile(r"@@+ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_LOOSE: Final = re.compile(r"@@(?:\s.*)?")
_GIT: Final = re.compile(r"diff --git (.+)")
_EXTENDED: Final = re.compile(
    r"(old mode|new mode|deleted file mode|new file mode|similarity index|dissimilarity index|rename from|"
    r"rename to|copy from|copy to|index) ?(.*)"
)
_BINARY: Final = re.compile(r"GIT binary patch|Binary files .* differ")
_ESCAPE: Final = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_ESCAPES: Final = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}
NOTHING: Final = "/dev/null"

Lines = list[tuple[int, str]]


def unified(lines: Lines) -> list[Section]:
    """The sections of a diff. What belongs to no file (a mail's head, a signature) is left out.

    Raises:
        BadPatch: naming the line that cannot be understood.
    """
    sections: list[Section] = []
    at = 0
    while at < len(lines):
        number, line = lines[at]
        plain = line.rstrip("\r")
        if found := _GIT.fullmatch(plain):
            section, at = _git(lines, at, found[1])
        elif _is_head(lines, at):
            section = Section("update", "", number)
            at = _head(lines, at, section)
        elif plain.startswith("@@"):
            raise BadPatch(
                "A hunk without the names of its file. Put --- a/PATH and +++ b/PATH above.", number
            )
        else:
            at += 1
            continue
        while at < len(lines) and lines[at][1].startswith("@@"):
            chunk, at = _hunk(lines, at)
            section.chunks.append(chunk)
        _finish(section)
        sections.append(section)
    return sections


def _is_head(lines: Lines, at: int) -> bool:
    """Whether `---` and `+++` lines stand here: alone, either may be a removed or an added line."""
    return at + 1 < len(lines) and lines[at][1].startswith("--- ") and lines[at + 1][1].startswith("+++ ")


def _git(lines: Lines, at: int, names: str) -> tuple[Section, int]:
    number = lines[at][0]
    section = Section("update", "", number)
    at += 1
    source = target = None
    while at < len(lines) and not _is_head(lines, at):
        line = lines[at][1].rstrip("\r")
        if _BINARY.match(line):
            raise BadPatch("Binary content cannot be patched. Make the file with the shell.", lines[at][0])
        found = _EXTENDED.fullmatch(line)
        if found is None:
            break
        word, value = found[1], found[2].strip()
        if word in ("new mode", "new file mode"):
            section.mode = _mode(value, lines[at][0])
        if word == "new file mode":
            section.kind = "add"
        elif word == "deleted file mode":
            section.kind = "delete"
        elif word in ("rename from", "copy from"):
            source = _unquoted(value)
            if word == "copy from":
                raise BadPatch(
                    "Copies are not patched. Add the copy as a new file with all its lines.", lines[at][0]
                )
        elif word == "rename to":
            target = _unquoted(value)
        at += 1
    if _is_head(lines, at):
        at = _head(lines, at, section)
    else:
        before, after = _two_names(names, number)
        _name(section, before, after)
    if source is not None and target is not None:
        section.path, section.target, section.plain = source, target, None
    return section, at


def _mode(value: str, number: int) -> int:
    try:
        bits = int(value, 8)
    except ValueError:
        raise BadPatch(f"{value!r} is no file mode.", number) from None
    if bits & 0o170000 not in (0, 0o100000):
        raise BadPatch(f"Mode {value} is a link or a submodule, which is not patched. Use the shell.", number)
    return 0o755 if bits & 0o111 else 0o644


def _two_names(names: str, number: int) -> tuple[str, str]:
    """The names of a `diff --git` line, which are the same but for their first letter where this is asked."""
    if names.startswith('"'):
        end = names.index('" ') + 1 if '" ' in names else len(names)
        return _unquoted(names[:end]), _unquoted(names[end:].strip() or names[:end])
    half = len(names) // 2
    if (
        names[half : half + 1] == " "
        and names[:half].partition("/")[2] == names[half + 1 :].partition("/")[2]
    ):
        return names[:half], names[half + 1 :]
    before, _, after = names.partition(" ")
    if not after:
        raise BadPatch("A `diff --git` line names two files.", number)
    return before, after


def _head(lines: Lines, at: int, section: Section) -> int:
    before, after = (_stamped(lines[at + offset][1][4:]) for offset in (0, 1))
    _name(section, before, after)
    return at + 2


def _stamped(name: str) -> str:
    """A name without the time that may follow it behind a tab."""
    return _unquoted(name.rstrip("\r").split("\t")[0].rstrip())


def _unquoted(name: str) -> str:
    if len(name) < 2 or not (name.startswith('"') and name.endswith('"')):
        return name

    def character(found: re.Match[bytes]) -> bytes:
        code = found[1]
        return bytes([int(code, 8) & 255]) if len(code) == 3 else _ESCAPES.get(code, code)

    return _ESCAPE.sub(character, name[1:-1].encode("utf-8")).decode("utf-8", "surrogateescape")


def _name(section: Section, before: str, after: str) -> None:
    if before == NOTHING and section.kind != "delete":
        section.kind = "add"
    elif after == NOTHING:
        section.kind = "delete"
    name = before if section.kind == "delete" else after
    section.path = name
    prefixed = before == NOTHING or before.startswith(("a/", "i/", "c/", "w/", "o/"))
    prefixed &= after == NOTHING or after.startswith(("b/", "w/", "i/"))
    if prefixed and name != NOTHING:
        section.path, section.plain = name[2:], name
    elif section.kind == "update" and before != after:
        section.plain = before


def _hunk(lines: Lines, at: int) -> tuple[Chunk, int]:
    """A hunk: by its counts where they fit what follows, else up to where no line of a hunk stands."""
    number, head = lines[at][0], lines[at][1].rstrip("\r")
    found = _HUNK.match(head)
    if found is None and not _LOOSE.fullmatch(head):
        raise BadPatch(f"{head[:80]!r} is no head of a hunk. It looks like @@ -1,3 +1,4 @@.", number)
    if found is not None:
        counts = int(found[2] or 1), int(found[4] or 1)
        counted = _counted(lines, at + 1, *counts)
        if counted is not None:
            return _chunk(lines, at, counted, int(found[1]), number), counted
    end = at + 1
    while end < len(lines) and _belongs(lines, end):
        end += 1
    blank = end
    while blank > at + 1 and not lines[blank - 1][1].strip("\r"):
        blank -= 1
    return _chunk(lines, at, blank, int(found[1]) if found else None, number), end


def _counted(lines: Lines, at: int, old: int, new: int) -> int | None:
    """Where a hunk ends that has so many lines; None where it has not."""
    while old > 0 or new > 0:
        if at >= len(lines):
            return None
        mark = lines[at][1][:1].strip("\r") or " "
        if mark not in (" ", "-", "+", "\\"):
            return None
        old -= mark in (" ", "-")
        new -= mark in (" ", "+")
        at += 1
    if old or new:
        return None
    if at < len(lines) and lines[at][1].startswith("\\"):
        at += 1
    if at < len(lines) and lines[at][1][:1] in (" ", "+", "-") and not _is_head(lines, at):
        signature = lines[at][1].rstrip() == "--"
        return at if signature else None
    return at


def _belongs(lines: Lines, at: int) -> bool:
    line = lines[at][1]
    if _is_head(lines, at) or line.startswith(("diff --git ", "@@")):
        return False
    return line[:1] in (" ", "-", "+", "\\", "", "\r")


def _chunk(lines: Lines, at: int, end: int, line: int | None, number: int) -> Chunk:
    chunk = Chunk(number, line)
    last = " "
    for where, text in lines[at + 1 : end]:
        mark = text[:1]
        if mark == "\\":
            for side, marks in ((chunk.old, "- "), (chunk.new, "+ ")):
                if last in marks and side:
                    side[-1] = side[-1].removesuffix("\n")
            continue
        if mark in ("", "\r"):
            mark, text = " ", " " + text
        chunk.add(mark, text[1:], where)
        last = mark
    if not chunk.old and not chunk.new:
        raise BadPatch("This hunk has no lines.", number)
    return chunk


def _finish(section: Section) -> None:
    if section.kind == "update" and not section.chunks and section.target is None and section.mode is None:
        raise BadPatch(
            f"Nothing is changed in {section.path}. Give its hunks, or leave it out.", section.number
        )
    if section.kind == "add" and any(chunk.old for chunk in section.chunks):
        raise BadPatch(f"{section.path} is a new file, but a hunk has old lines.", section.number)
