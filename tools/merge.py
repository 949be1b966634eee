"""Three-way merge of a file's content, and taking changes back while later ones stay.

To take back what changed `before` into `after`, in a file that is `now`, is to merge with `after` as the
base: one side is `now`, the other is `before`. Lines that both sides changed differently are a conflict: they
stay as they are now and both versions are reported. Positions are lines from 1; bytes outside a change are
kept exactly.
"""

import codecs
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tools.diff import changed_lines
from tools.encodings import SAMPLE, binary_kind
from tools.workspace import content_hash

BINARY: Final = "it is not text"
ENCODING: Final = "its encoding changed"
EXISTS: Final = "it was changed after it was made"
MADE_AGAIN: Final = "it was made again"
GONE: Final = "it was deleted afterwards"


@dataclass(frozen=True, slots=True)
class Hunk:
    """One changed range: lines `start` to `end` (from 1, exclusive end) of the old text became lines
    `new_start` to `new_end` of the new. `id` names it among the hunks of this change of this file."""

    id: str
    start: int
    end: int
    new_start: int
    new_end: int
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """Lines that cannot be decided here. `line` is where they are in the content as it is now.

    `current` is what is there and stays, `proposed` what was to be put there, `base` what both came from.
    Texts are None where the conflict is about the file as a whole; `why` then says what it is.
    """

    line: int
    current: str | None = None
    proposed: str | None = None
    base: str | None = None
    why: str = "both sides changed it"


@dataclass(frozen=True, slots=True)
class Merged:
    """`data` is the result (None = no file), with what `conflicts` say left as it is in `ours`."""

    data: bytes | None
    conflicts: tuple[Conflict, ...] = ()


def merge(base: bytes, ours: bytes, theirs: bytes) -> Merged:
    """Both sides' changes to `base`; where they contradict each other, `ours` and a conflict."""
    if theirs in (base, ours):
        return Merged(ours)
    if ours == base:
        return Merged(theirs)
    try:
        codec, (old_text, my_text, their_text) = _decoded(base, ours, theirs)
    except _Undecided as error:
        return Merged(ours, (Conflict(1, why=str(error)),))
    kind, wanted = _ending(old_text), _ending(my_text)
    if kind and wanted and kind != wanted and kind == _ending(their_text):
        # Line ends that were converted as a whole do not make every line a changed one.
        old_text, their_text = (text.replace(kind, wanted) for text in (old_text, their_text))
    old, my, their = map(_lines, (old_text, my_text, their_text))
    pieces: list[str] = []
    conflicts: list[Conflict] = []
    for group in _groups(old, my, their):
        if group.decided is not None:
            pieces += group.decided
            continue
        conflicts.append(
            Conflict(group.line, "".join(group.ours), "".join(group.theirs), "".join(group.base))
        )
        pieces += group.ours
    return Merged(codec.encode("".join(pieces)), tuple(conflicts))


def hunks(before: bytes | None, after: bytes | None) -> tuple[Hunk, ...]:
    """The changed ranges from one content to another; none where one side is no text or missing."""
    if before is None or after is None or before == after:
        return ()
    try:
        _, texts = _decoded(before, after)
    except _Undecided:
        return ()
    old, new = map(_lines, texts)
    names = content_hash(before) + content_hash(after)
    return tuple(
        Hunk(
            content_hash(f"{names} {number}".encode())[:12],
            start + 1,
            end + 1,
            new_start + 1,
            new_end + 1,
            "".join(old[start:end]),
            "".join(new[new_start:new_end]),
        )
        for number, (start, end, new_start, new_end) in enumerate(changed_lines(old, new))
    )


def without(before: bytes, after: bytes, ids: Collection[str]) -> bytes:
    """`after` with these hunks of the change as they were in `before`.

    Raises:
        KeyError: there is no such hunk.
    """
    found = hunks(before, after)
    known = {hunk.id for hunk in found}
    if unknown := sorted(set(ids) - known):
        raise KeyError(unknown[0])
    codec, (_, text) = _decoded(before, after)
    lines = _lines(text)
    for hunk in reversed(found):
        if hunk.id in ids:
            lines[hunk.new_start - 1 : hunk.new_end - 1] = [hunk.old] if hunk.old else []
    return codec.encode("".join(lines))


def reverse(
    before: bytes | None, after: bytes | None, now: bytes | None, only: Collection[str] | None = None
) -> Merged:
    """Content `now` without the change from `before` to `after` (None = no file); later changes stay.

    `only` are ids of the hunks to take back; None means all of the change.

    Raises:
        KeyError: `only` names a hunk that the change does not have.
    """
    if before is not None and after is not None:
        wanted = before if only is None else without(before, after, only)
        if now is None:
            return Merged(None, (Conflict(1, why=GONE),) if wanted != after else ())
        return merge(after, now, wanted)
    if only:
        raise KeyError(next(iter(only)))
    if now == before:
        return Merged(now)
    if now == after:
        return Merged(before)
    if after is None:
        return Merged(now, (Conflict(1, _readable(now), _readable(before), None, MADE_AGAIN),))
    return Merged(
        now, (Conflict(1, _readable(now), None, _readable(after), EXISTS),) if now is not None else ()
    )


class _Undecided(Exception):
    """The sides cannot be compared by lines."""


@dataclass(frozen=True, slots=True)
class _Codec:
    name: str
    mark: bytes = b""

    def decode(self, data: bytes) -> str:
        return data[len(self.mark) :].decode(self.name, "strict")

    def encode(self, text: str) -> bytes:
        return self.mark + text.encode(self.name) if text else b""


_WIDE: Final = (
    _Codec("utf-32-le", codecs.BOM_UTF32_LE),
    _Codec("utf-32-be", codecs.BOM_UTF32_BE),
    _Codec("utf-16-le", codecs.BOM_UTF16_LE),
    _Codec("utf-16-be", codecs.BOM_UTF16_BE),
)


def _decoded(*sides: bytes) -> tuple[_Codec, list[str]]:
    """The sides as text of one encoding. Any encoding that contains ASCII will do for lines: one that is not
    UTF-8 is taken byte by byte."""
    found: set[_Codec] = set()
    for side in sides:
        if not side or side.isascii():
            if binary_kind(side[:SAMPLE]) is not None:
                raise _Undecided(BINARY)
            continue
        wide = next((codec for codec in _WIDE if side.startswith(codec.mark)), None)
        if wide is None and binary_kind(side[:SAMPLE]) is not None:
            raise _Undecided(BINARY)
        found.add(wide or _Codec("utf-8" if _is_utf8(side) else "latin-1"))
    if len(found) > 1 or (found and next(iter(found)).mark and any(s.isascii() and s for s in sides)):
        raise _Undecided(ENCODING)
    codec = next(iter(found), _Codec("utf-8"))
    try:
        return codec, [codec.decode(side) if side else "" for side in sides]
    except UnicodeDecodeError as error:  # a mark, and then what that encoding cannot have
        raise _Undecided(BINARY) from error


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Group:
    """Lines that belong together. `decided` is the result, or None for a conflict."""

    line: int
    base: Sequence[str]
    ours: Sequence[str]
    theirs: Sequence[str]
    decided: Sequence[str] | None


_Range = tuple[int, int, int, int]


def _groups(old: list[str], my: list[str], their: list[str]) -> Iterator[_Group]:
    ours, theirs = changed_lines(old, my), changed_lines(old, their)
    at = mine = 0
    while ours or theirs:
        start = min(side[0][0] for side in (ours, theirs) if side)
        end, my_part, their_part = _cluster(ours, theirs)
        yield _Group(mine + 1, (), (), (), old[at:start])
        mine += start - at
        base = old[start:end]
        my_lines = _side(old, my, my_part, start, end)
        their_lines = _side(old, their, their_part, start, end)
        if not their_part or _within(their_lines, my_lines):
            decided = my_lines
        elif not my_part or _within(my_lines, their_lines):
            decided = their_lines
        else:
            decided = None
        yield _Group(mine + 1, base, my_lines, their_lines, decided)
        mine += len(my_lines)
        at = end
    yield _Group(mine + 1, (), (), (), old[at:])


def _within(lines: list[str], more: list[str]) -> bool:
    """Whether one side has all that the other made of these lines, perhaps with lines before or behind."""
    if len(lines) == len(more) or not lines:
        return lines == more
    return more[: len(lines)] == lines or more[-len(lines) :] == lines


def _cluster(ours: list[_Range], theirs: list[_Range]) -> tuple[int, list[_Range], list[_Range]]:
    """Take the next changes that overlap one another off both lists; with where they end in the base."""
    my_part: list[_Range] = []
    their_part: list[_Range] = []
    first = ours if not theirs or (ours and ours[0][:2] <= theirs[0][:2]) else theirs
    taken = first.pop(0)
    (my_part if first is ours else their_part).append(taken)
    start, end = taken[0], taken[1]
    while True:
        for side, part in ((ours, my_part), (theirs, their_part)):
            if side and _overlap(start, end, side[0][0], side[0][1]):
                part.append(side.pop(0))
                end = max(end, part[-1][1])
                break
        else:
            return end, my_part, their_part


def _overlap(start: int, end: int, other: int, other_end: int) -> bool:
    """Whether a range that begins at or after `start` meets `start`–`end`; touching ends do not."""
    if start == end or other == other_end:
        return start == other if start == end and other == other_end else start < other < end
    return other < end


def _side(old: list[str], new: list[str], part: list[_Range], start: int, end: int) -> list[str]:
    """One side's lines for a range of the base."""
    lines: list[str] = []
    at = start
    for begin, stop, new_begin, new_stop in part:
        lines += old[at:begin] + new[new_begin:new_stop]
        at = stop
    return lines + old[at:end]


def _lines(body: str) -> list[str]:
    """Lines with their ends. A CR alone ends a line only in a text without LF."""
    ending = "\r" if "\r" in body and "\n" not in body else "\n"
    lines = [line + ending for line in body.split(ending)]
    lines[-1] = lines[-1][: -len(ending)]
    return lines if lines[-1] else lines[:-1]


def _ending(body: str) -> str | None:
    """The one line end of a text, or None where it has several or none."""
    pairs, feeds, returns = body.count("\r\n"), body.count("\n"), body.count("\r")
    if feeds and not returns:
        return "\n"
    if pairs and pairs == feeds == returns:
        return "\r\n"
    return "\r" if returns and not feeds else None


def _readable(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")
