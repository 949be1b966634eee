"""A section's chunks applied to the content of its file: exactly where they say, else where their text is."""

from collections.abc import Sequence

from tools.anchors import anchored
from tools.applying import Applied, EditError, Hint, Hunk, NoChange, Unfit, apply_edits
from tools.encodings import Binary
from tools.errors import ToolError
from tools.patch.section import BadPatch, Chunk
from tools.patch.strict import strictly
from tools.text import Text, line_end, line_number, line_start


def fitted(data: bytes, chunks: Sequence[Chunk], only_exact: bool) -> Applied:
    """The patched content, all chunks or none.

    Raises:
        EditError: (a subclass) what does not fit, the nearest place, and which line of the patch it is.
    """
    try:
        applied = strictly(data, chunks)
        if applied is not None:
            return applied
        if not data:
            return _filled(chunks)
        flat = Text.decode(data).flat
    except Binary as binary:
        raise Unfit(f"The file is binary ({binary.kind}) and cannot be patched.") from binary
    changing = [chunk for chunk in chunks if chunk.old != chunk.new]
    if not changing:
        raise NoChange("The hunks have context only; no line is added or removed.")
    hunks = [_hunk(chunk, flat) for chunk in changing]
    try:
        return apply_edits(data, hunks, only_exact=only_exact)
    except ToolError as error:
        raise _named(error, changing) from error


def _filled(chunks: Sequence[Chunk]) -> Applied:
    """The content of a file that was empty."""
    for chunk in chunks:
        if chunk.old:
            raise EditError(
                f"The file is empty, but line {chunk.numbers[0]} of the patch expects a line in it."
            )
    return apply_edits(b"", [Hunk("", "".join(line for chunk in chunks for line in chunk.new))])


def _hunk(chunk: Chunk, flat: str) -> Hunk:
    old, new = _text(chunk.old), _text(chunk.new)
    anchor = "\n".join(chunk.anchors) or None
    hint = Hint(chunk.line, chunk.last, chunk.says_newline)
    if old:
        return Hunk(old, new, anchor, hint)
    if chunk.last:
        at = line_start(flat, len(flat) - 1)
    elif anchor is not None:
        at = anchored(flat, anchor).line
    else:
        raise BadPatch(
            "This place has only new lines. Give a line of the file before or after them as context.",
            chunk.number,
        )
    above = flat[at : line_end(flat, at)] + "\n"
    return Hunk(above, above + new, None, Hint(line_number(flat, at), chunk.last, chunk.says_newline))


def _text(lines: list[str]) -> str:
    return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


def _named(error: ToolError, chunks: Sequence[Chunk]) -> ToolError:
    """The error in a patch's words, with the lines of the patch that it speaks of."""
    message = error.message
    for word, ours in (
        ("At least ", "at least "),
        (" edits failed; nothing was written.", " places do not fit."),
        ("Edit ", "Place "),
        ("Edits ", "Places "),
        ("Join them into one edit; nothing was written.", "Join them."),
        ("Leave this edit out.", "Leave it out."),
        ("`old`", "the old text"),
        ("`new`", "the new text"),
    ):
        message = message.replace(word, ours)
    failures = [dict(failure) for failure in error.data.get("failures", [])]
    for failure in failures:
        number = failure.get("edit")
        if not isinstance(number, int):
            continue
        chunk = chunks[number - 1]
        near = failure.get("nearest") or {}
        index = near.get("old_line", 1) - 1
        failure["patch_line"] = chunk.numbers[index] if index < len(chunk.numbers) else chunk.number
        which = f"Place {number}" if len(chunks) > 1 else "This place"
        message += f"\n({which} begins at line {chunk.number} of the patch"
        message += f"; the first difference is its line {failure['patch_line']}.)" if near else ".)"
    return type(error)(message, **{**error.data, "failures": failures})
