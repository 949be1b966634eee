"""Applying edits to the bytes of a file: all of them or none, and nothing changes outside them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from tools.anchors import Anchored, anchored
from tools.diff import Span, comparable, render, unified_diff
from tools.encodings import Binary
from tools.errors import InvalidArguments
from tools.files import MAX_FILE_BYTES, too_large
from tools.matching import MAX_MATCHES, Found, Match, Tier, Window, find
from tools.refusals import omission, redaction
from tools.repair import nearest, numbered
from tools.rewriting import rewritten
from tools.text import Text, line_end, line_number, line_start

LISTED = 20
MAX_EDITS = 200
MAX_FAILURES = 10
"""Failed edits that are looked into; the rest can wait for the next try."""


class EditError(InvalidArguments):
    """An edit that was refused. `data["failures"]` has the facts of each edit that failed."""


class NoMatch(EditError):
    """`old` is not in the file. The facts hold the nearest candidate and its first differing line."""


class Ambiguous(EditError):
    """`old` is in the file more than once at the winning tier. The facts hold every line."""


class Overlap(EditError):
    """Two edits change the same text."""


class NoChange(EditError):
    """The edit would leave the file as it is."""


class Refused(EditError):
    """`new` holds what must not be written: an omission, a redaction marker, a character without bytes."""


class Unfit(EditError):
    """The file cannot be edited as text, or an edit without `old` meets a file that has content."""


@dataclass(frozen=True, slots=True)
class Hint:
    """What a patch says about a hunk of whole lines, beside its text.

    `line` (from 1) is where it begins: it decides among several exact matches, and is else ignored. `last`:
    it ends the file. `newline`: whether the file is to end with a newline; None keeps it as it is.
    """

    line: int | None = None
    last: bool = False
    newline: bool | None = None


@dataclass(frozen=True, slots=True)
class Hunk:
    """One replacement. An empty `old` makes a new file; `anchor` restricts where `old` is looked for.

    With a `hint` it is whole lines of a patch, and what is the same at both ends of `old` and `new` is
    context: other hunks may have the same context.
    """

    old: str
    new: str
    anchor: str | None = None
    hint: Hint | None = None


@dataclass(frozen=True, slots=True)
class Placed:
    """Where an edit of the request went: the tier that found it, and lines (from 1) of the old file."""

    edit: int
    tier: Tier
    line: int
    last_line: int


@dataclass(frozen=True)
class Applied:
    """The edited content. `hunks` are in the order of the request."""

    data: bytes
    hunks: tuple[Placed, ...]
    encoding: str
    before: str
    after: str
    spans: tuple[Span, ...]

    def diff(self, path: str, context: int = 3) -> tuple[str, int, int]:
        """A unified diff with the numbers of lines added and removed."""
        if not self.before:
            return unified_diff(None, self.data, path)
        return render(comparable(self.before), comparable(self.after), self.spans, path, context=context)

    @cached_property
    def unified(self) -> str:
        return self.diff("file")[0]


@dataclass(frozen=True, slots=True)
class _Located:
    edit: int
    start: int
    end: int
    replacement: str
    tier: Tier
    hunk: Hunk


def apply_edits(
    data: bytes, edits: Iterable[Hunk | Mapping[str, Any]], *, only_exact: bool = False
) -> Applied:
    """Apply edits to the content of a file; each is located on `data` as given, whatever their order.

    `edits` are `Hunk`s or mappings `{old, new, anchor?}`. With `only_exact` no tolerance is used. Bytes
    outside the edits are kept exactly: encoding, byte-order mark, line endings, final newline.

    Raises:
        EditError: (a subclass) naming every edit that failed; nothing is applied.
        BadAnchor: the only failure is an anchor that is not in the file, or there more than once.
    """
    hunks = [edit if isinstance(edit, Hunk) else _hunk(edit) for edit in edits]
    if not hunks:
        raise EditError("There are no edits. Give at least one {old, new}.")
    if len(hunks) > MAX_EDITS:
        raise EditError(f"There are {len(hunks)} edits; one call takes {MAX_EDITS}.")
    if len(data) > MAX_FILE_BYTES:
        raise too_large("The file", len(data), MAX_FILE_BYTES)
    if not data or any(not hunk.old for hunk in hunks):
        return _fresh(data, hunks)
    try:
        text = Text.decode(data)
    except Binary as binary:
        raise Unfit(
            f"The file is binary ({binary.kind}) and cannot be edited as text. Use the shell to change it.",
            failures=[{"reason": "binary", "kind": binary.kind}],
        ) from binary
    located: list[_Located] = []
    failures: list[tuple[int, InvalidArguments]] = []
    for number, hunk in enumerate(hunks, 1):
        try:
            located.append(_locate(text, number, hunk, only_exact))
        except InvalidArguments as error:
            failures.append((number, error))
            if len(failures) == MAX_FAILURES:
                break
    if failures:
        raise _combined(failures, len(hunks))
    located.sort(key=lambda place: (place.start, place.end))
    _require_apart(text.flat, located)
    return _spliced(text, located)


def _hunk(edit: Mapping[str, Any]) -> Hunk:
    unknown = sorted(set(edit) - {"old", "new", "anchor"})
    if unknown or not isinstance(edit.get("old"), str) or not isinstance(edit.get("new"), str):
        raise EditError(
            f"An edit is {{old, new, anchor?}} with text values; got the fields {sorted(edit)}.",
            failures=[{"reason": "shape"}],
        )
    return Hunk(edit["old"], edit["new"], edit.get("anchor"))


def _fresh(data: bytes, hunks: Sequence[Hunk]) -> Applied:
    """The content of a new (or empty) file."""
    if data:
        raise Unfit(
            "`old` is empty, which makes a new file, but this file exists and has content. "
            "Put the text to replace into `old`; to insert, repeat a line beside the new text in both.",
            failures=[{"reason": "exists"}],
        )
    if len(hunks) > 1 or hunks[0].old:
        raise NoMatch(
            "The file is empty, so `old` is not in it. Give one edit with an empty `old` and all content.",
            failures=[{"reason": "empty_file"}],
        )
    new = hunks[0].new
    if not new:
        raise NoChange("`old` and `new` are both empty. Put the content of the new file into `new`.")
    require_writable("", new, "")
    try:
        content = new.encode("utf-8")
    except UnicodeEncodeError as error:
        raise Refused("`new` holds a lone surrogate, which no file can hold as text.") from error
    placed = Placed(1, "exact", 1, 1)
    return Applied(content, (placed,), "UTF-8", "", new, (Span(0, 0, 0, len(new)),))


def _locate(text: Text, number: int, hunk: Hunk, only_exact: bool) -> _Located:
    old, new = text.normal(hunk.old), text.normal(hunk.new)
    if text.encoding.bom:
        old, new = old.removeprefix("\ufeff"), new.removeprefix("\ufeff")
    if old == new:
        raise NoChange("`old` and `new` are the same. Leave this edit out.", reason="no_change")
    flat = text.flat
    anchor = None if hunk.anchor is None else anchored(flat, hunk.anchor)
    window = anchor.window if anchor else Window(0, len(flat))
    found = find(flat, old, window, only_exact=only_exact, whole_lines=hunk.hint is not None)
    matches = list(anchor.preferred(found.matches) if anchor else found.matches)
    if hunk.hint is not None and len(matches) > 1:
        matches = _hinted(flat, matches, found.tier, hunk.hint)
    if not matches:
        raise _no_match(flat, old, new, window, anchor, only_exact)
    match, *others = matches
    if others:
        raise _ambiguous(flat, found, matches, anchor)
    replaced = flat[match.start : match.end]
    replacement = new if found.tier == "exact" else rewritten(flat, match, found.tier, old, new)
    if replacement is None:
        raise NoMatch(
            f"`old` is at line {line_number(flat, match.start)} but indented deeper than in the file, and "
            "`new` has a line that cannot be moved left that far. Use the file's indentation.\n"
            + _around(flat, match),
            reason="indentation",
            line=line_number(flat, match.start),
        )
    if replacement == replaced:
        raise NoChange("The file already holds what this edit would write.", reason="no_change")
    require_writable(old, new, replaced)
    known = set(replaced)
    text.encoding.check("".join(character for character in new if character not in known))
    if hunk.hint is None or (match.end == len(flat) and not text.ends_with_newline):
        return _Located(number, match.start, match.end, replacement, found.tier, hunk)
    head, tail = _same_lines(replaced, replacement)
    inner = replacement[head : len(replacement) - tail]
    return _Located(number, match.start + head, match.end - tail, inner, found.tier, hunk)


def _hinted(flat: str, matches: list[Match], tier: Tier, hint: Hint) -> list[Match]:
    """The matches that fit what a patch says about its place; all of them where that fits none."""
    if hint.last and (last := [match for match in matches if match.end >= len(flat)]):
        return last
    if hint.line is not None and tier == "exact":
        return [match for match in matches if line_number(flat, match.start) == hint.line] or matches
    return matches


def _same_lines(one: str, other: str) -> tuple[int, int]:
    """Characters of the whole lines that two texts share at the beginning, and at the end."""
    ours, theirs = _ended(one), _ended(other)
    most = min(len(ours), len(theirs))
    head = tail = 0
    while head < most and ours[head] == theirs[head]:
        head += 1
    while tail < most - head and ours[-1 - tail] == theirs[-1 - tail]:
        tail += 1
    return sum(map(len, ours[:head])), sum(map(len, ours[len(ours) - tail :]))


def _ended(text: str) -> list[str]:
    *lines, rest = text.split("\n")
    return [line + "\n" for line in lines] + [rest] * bool(rest)


def require_writable(old: str, new: str, replaced: str) -> None:
    """Refuse added text that must not be written: `old` is what the edit names, `replaced` what is there.

    Raises:
        Refused: an omission, a redaction marker, a NUL.
    """
    placeholder = omission(old, new)
    if placeholder is not None:
        raise Refused(
            f"`new` adds the placeholder {placeholder[:120]!r} for code left out. Nothing fills it in: "
            "write the code itself, or make smaller edits that leave the rest alone.",
            reason="omission",
            line=placeholder,
        )
    marker = redaction(new, replaced)
    if marker is not None:
        raise Refused(
            f"`new` would write the redaction marker {marker} into the file. The real value was hidden from "
            "you and is still there: leave the marker out of `old` and `new`, and edit around it.",
            reason="redaction_marker",
        )
    if "\0" in new:
        raise Refused("`new` holds a NUL character, which would make the file binary.", reason="nul")


def _require_apart(flat: str, located: list[_Located]) -> None:
    for first, second in pairwise(located):
        if second.start < first.end:
            raise Overlap(
                f"Edits {first.edit} and {second.edit} both change line {line_number(flat, second.start)}. "
                "Join them into one edit; nothing was written.",
                failures=[{"reason": "overlap", "edits": [first.edit, second.edit]}],
            )


def _spliced(text: Text, located: list[_Located]) -> Applied:
    body = text.body
    pieces: list[str] = []
    spans: list[Span] = []
    at = size = flat = 0
    for place in located:
        start = text.position(place.start, (flat, at))
        end = text.position(place.end, (place.start, start))
        added = text.with_endings(place.start, place.end, body[start:end], place.replacement)
        if end == len(body):
            added = _same_final_newline(text, place, body[at:start] or "".join(pieces[-2:]), added)
        pieces += (body[at:start], added)
        size += start - at
        spans.append(Span(start, end, size, size + len(added)))
        size, at, flat = size + len(added), end, place.end
    pieces.append(body[at:])
    after = "".join(pieces)
    if after == body:
        raise NoChange(
            "The file already holds what these edits would write.", failures=[{"reason": "no_change"}]
        )
    hunks: list[Placed] = []
    for place in located:
        line = line_number(text.flat, place.start)
        last = line + text.flat.count("\n", place.start, max(place.end - 1, place.start))
        hunks.append(Placed(place.edit, place.tier, line, last))
    hunks.sort(key=lambda hunk: hunk.edit)
    return Applied(
        text.encode(after), tuple(hunks), text.encoding.name, body, after, _line_spans(body, after, spans)
    )


def _same_final_newline(text: Text, last: _Located, before: str, added: str) -> str:
    """A file keeps its final newline, or its lack of one, unless changing that is all an edit does.

    `before` is what stands before the end of the file's last edit, `added` its replacement.
    """
    newline = "\r" if text.ending == "\r" else "\n"
    wanted = None if last.hunk.hint is None else last.hunk.hint.newline
    if wanted is not None:
        rest = added or before
        if wanted:
            return added if not rest or rest.endswith(newline) else added + text.ending
        return added.removesuffix(newline).removesuffix("\r") if added.endswith(newline) else added
    old, new = text.normal(last.hunk.old), text.normal(last.hunk.new)
    if old + "\n" == new or new + "\n" == old:
        return added
    if text.ends_with_newline:
        rest = added or before
        return added if not rest or rest.endswith(newline) else added + text.ending
    while added.endswith(newline):
        added = added[:-1].removesuffix("\r") if newline == "\n" else added[:-1]
    return added


def _line_spans(body: str, after: str, spans: list[Span]) -> tuple[Span, ...]:
    """Spans widened to whole lines and joined where they meet."""
    if "\n" not in body and "\r" in body:
        body, after = comparable(body), comparable(after)
    result: list[Span] = []
    for span in spans:
        start = line_start(body, span.start)
        new_start = span.new_start - (span.start - start)
        end = min(line_end(body, span.end) + 1, len(body))
        new_end = span.new_end + end - span.end
        if result and start < result[-1].end:
            start, new_start = result[-1].start, result[-1].new_start
            result.pop()
        result.append(Span(start, end, new_start, new_end))
    return tuple(result)


def _combined(failures: list[tuple[int, InvalidArguments]], count: int) -> InvalidArguments:
    """One error that names every failed edit."""
    facts = [{"edit": number, **error.data} for number, error in failures]
    kind = type(failures[0][1])
    if count == 1:
        return kind(failures[0][1].message, failures=facts)
    least = "At least " if len(failures) == MAX_FAILURES else ""
    head = f"{least}{len(failures)} of {count} edits failed; nothing was written."
    return kind("\n".join([head, *(f"Edit {n}: {error.message}" for n, error in failures)]), failures=facts)


def _no_match(
    flat: str, old: str, new: str, window: Window, anchor: Anchored | None, only_exact: bool
) -> NoMatch:
    where = "in the file" if anchor is None else "in the block of the anchor"
    near = nearest(flat, old, window)
    lines = [f"`old` was not found {where}."]
    if redaction(old, ""):
        lines.append("It holds a redaction marker, which stands for a hidden value: edit around it.")
    at = flat.find(new) if new.strip() else -1
    if at >= 0 and flat.find(new, at + 1) < 0:
        lines.append(f"`new` is there already, at line {line_number(flat, at)}.")
    if only_exact:
        lines.append("The file was not read in this session, so only an exact match counts: read it first.")
    if near is None:
        lines.append("Nothing there resembles it. Read the file, or search for where the text is.")
        return NoMatch("\n".join(lines), reason="no_match", nearest=None)
    lines.append(
        f"Nearest is line {near.line}. First difference at line {near.differs}, line {near.old_line} of "
        f"`old`: {near.hint}.\n  old:  {near.expected}\n  file: {near.found}\n"
        f"The file has there:\n{near.excerpt}"
    )
    facts = {
        name: getattr(near, name) for name in ("line", "differs", "old_line", "expected", "found", "hint")
    }
    return NoMatch("\n".join(lines), reason="no_match", nearest=facts)


def _ambiguous(flat: str, found: Found, matches: Sequence[Match], anchor: Anchored | None) -> Ambiguous:
    numbers = [line_number(flat, match.start) for match in matches]
    listed = ", ".join(map(str, numbers[:LISTED]))
    more = f" and {len(numbers) - LISTED} more" if len(numbers) > LISTED else ""
    least = "at least " if len(numbers) >= MAX_MATCHES else ""
    tier = "" if found.tier == "exact" else f" (matching by {found.tier})"
    where = "in the block of the anchor" if anchor else "in the file"
    shown = "\n…\n".join(_around(flat, match) for match in matches[:3])
    return Ambiguous(
        f"`old` is {least}{len(numbers)} times {where}{tier}: lines {listed}{more}. Add lines around it "
        f"until it is there once, or give an anchor such as the head of the function.\n{shown}",
        reason="ambiguous",
        lines=numbers,
        tier=found.tier,
    )


def _around(flat: str, match: Match) -> str:
    first = line_number(flat, match.start)
    last = line_number(flat, max(match.end - 1, match.start))
    return numbered(flat, max(first - 1, 1), min(last, first + 3) + 1)
