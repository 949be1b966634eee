"""Replacing a whole definition by its name, so that a large body need not be repeated to be replaced.

An edit with an empty `old` and an `anchor`, in a file that has content, means the one definition that the
anchor names: by its name (`Parser.parse`), or by its head as the file has it. It becomes an ordinary edit
whose `old` is the definition's exact text, so everything that guards those guards it as well.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, Protocol, TypeVar

from tools.applying import Ambiguous, EditError, NoMatch, Refused, Unfit
from tools.contents import Content, content
from tools.encodings import Binary
from tools.errors import ToolError
from tools.files import NotFound
from tools.indentation import shift_between
from tools.index import Index
from tools.index.parsing import MAX_BYTES, Parsed
from tools.index.symbol import Symbol
from tools.text import Text
from tools.workspace import Workspace, content_hash

PARSE_S: Final = 5.0
LISTED: Final = 20

_SEPARATOR: Final = re.compile(r"::|[.#]|->")
_COMMENT: Final = re.compile(r"\s*(#(?!\[)|//|/\*|\*|--|\"\"\")")
_BEFORE: Final = re.compile(r"\s*(#|//|/\*|\*|--|\"\"\"|@)")
"""How lines begin that may stand before a definition: comments, attributes, decorators."""


class _Edit(Protocol):
    """An item of the edit tool's arguments."""

    @property
    def old(self) -> str: ...
    @property
    def new(self) -> str: ...
    @property
    def anchor(self) -> str | None: ...
    def model_copy(self, *, update: dict[str, Any]) -> Any: ...


Edit = TypeVar("Edit", bound=_Edit)


@dataclass(frozen=True, slots=True)
class _Code:
    """A file's text with its definitions; offsets of symbols are bytes of `data`."""

    path: str
    flat: str
    data: bytes
    parsed: Parsed

    def text(self, start: int, end: int) -> str:
        """A part of the file as the edit engine sees it: what UTF-8 has no bytes for is one character."""
        first = len(self.data[:start].decode("utf-8", "replace"))
        return self.flat[first : first + len(self.data[start:end].decode("utf-8", "replace"))]


async def by_symbol(edits: Sequence[Edit], path: str, workspace: Workspace) -> list[Edit]:
    """The same edits, those that name a definition with its present text as `old`.

    Raises:
        ToolError: a name is not defined there, or more than once, the file was not read or cannot be parsed,
            or `new` is no whole definition. Nothing was changed.
    """
    if not any(not edit.old and edit.anchor for edit in edits):
        return list(edits)
    try:
        now = await asyncio.to_thread(content, workspace, path)
    except NotFound:
        return list(edits)  # a new file
    if not now.data:
        return list(edits)
    code = await _parsed(now, workspace)
    resolved: list[Edit] = []
    for edit in edits:
        if edit.old or not edit.anchor:
            resolved.append(edit)
            continue
        try:
            old, new = await _replacement(code, edit.anchor, edit.new, workspace)
        except ToolError as error:
            raise type(error)(f"{code.path}: {error.message}", **error.data) from error
        resolved.append(edit.model_copy(update={"old": old, "new": new, "anchor": None}))
    return resolved


async def _parsed(now: Content, workspace: Workspace) -> _Code:
    if workspace.seen.get(now.path) is None:
        raise Unfit(f"{now.path} was not read in this session: read it before replacing a definition in it.")
    if content_hash(now.data) != workspace.seen[now.path]:
        raise Unfit(f"{now.path} has changed since you last saw it: read it again, then repeat the edit.")
    try:
        flat = await asyncio.to_thread(lambda: Text.decode(now.data).flat)
    except Binary as binary:
        raise Unfit(f"{now.path} is binary ({binary.kind}) and defines nothing.") from binary
    data = flat.encode("utf-8", "replace")
    parsed = await Index.of(workspace).parse(now.path, data, PARSE_S) if len(data) <= MAX_BYTES else None
    if parsed is None:
        raise Unfit(
            f"`old` is empty, so the anchor should name a definition, but {now.path} cannot be parsed (its "
            "language is not known here, or it is too large). Give the text to replace in `old`.",
            failures=[{"reason": "not_parsed"}],
        )
    return _Code(now.path, flat, data, parsed)


async def _replacement(code: _Code, anchor: str, new: str, workspace: Workspace) -> tuple[str, str]:
    """The exact text to replace, and what to put there."""
    symbol = _named(code, anchor)
    flaws = [flaw.line for flaw in code.parsed.flaws if symbol.line <= flaw.line <= symbol.last_line]
    if flaws:
        raise Unfit(
            f"The syntax of {symbol.name} is broken at line {flaws[0]}, so where it ends is not certain. "
            "Give the text to replace in `old`.",
            failures=[{"reason": "broken", "line": flaws[0]}],
        )
    if not new.strip():
        raise Refused("`new` is empty. To delete a definition, give its text in `old`.", reason="empty")
    start = code.data.rfind(b"\n", 0, symbol.start) + 1
    if code.data[start : symbol.start].strip():
        start = symbol.start  # something stands before it on its line
    if _COMMENT.match(new):
        start = _with_comments(code, start)
    old = code.text(start, symbol.end)
    fitted = _indented(new, old, code.flat)
    after = code.text(0, start) + fitted + code.text(symbol.end, len(code.data))
    await _require_whole(code, start, fitted, after, workspace)
    return old, fitted


def _named(code: _Code, anchor: str) -> Symbol:
    """The one definition an anchor names."""
    wanted = anchor.strip()
    head = _head(wanted)
    found = [one for one in code.parsed.symbols if _head(one.signature) == head]
    if not found:
        *containers, name = [part for part in _SEPARATOR.split(wanted.removesuffix("()")) if part] or [""]
        found = [one for one in code.parsed.symbols if one.name == name and _is_in(one, containers)]
    if len(found) == 1:
        return found[0]
    if found:
        places = ", ".join(f"{_qualified(one)} at line {one.line}" for one in found[:LISTED])
        raise Ambiguous(
            f"The anchor {wanted!r} names {len(found)} definitions: {places}. Name it with what it is "
            "in, such as Class.method, or give its text in `old`.",
            reason="anchor_ambiguous",
            lines=[one.line for one in found],
        )
    names = {_qualified(one): one for one in code.parsed.symbols}
    near = get_close_matches(wanted, names, 5, 0.5)
    hint = f" Did you mean {', '.join(near)}?" if near else ""
    raise NoMatch(
        f"`old` is empty, so the anchor should name a definition, and nothing is defined as {wanted!r}."
        f"{hint} To insert text, repeat a line beside it in `old` and `new`.",
        reason="anchor_not_found",
    )


def _is_in(one: Symbol, containers: list[str]) -> bool:
    if not containers:
        return True
    return [part for part in _SEPARATOR.split(one.container) if part][-len(containers) :] == containers


def _qualified(one: Symbol) -> str:
    return f"{one.container}.{one.name}" if one.container else one.name


def _head(text: str) -> str:
    """A definition's head without what differs between a line of the file and a signature."""
    return " ".join(text.split()).rstrip(" :{").removesuffix(" =>")


def _with_comments(code: _Code, start: int) -> int:
    """The beginning of the comments directly above: `new` brings its own, which must not be there twice."""
    while start:
        above = code.data.rfind(b"\n", 0, start - 1) + 1
        if not _COMMENT.match(code.data[above : start - 1].decode("utf-8", "replace")):
            break
        start = above
    return start


def _indented(new: str, old: str, flat: str) -> str:
    """`new` at the indentation of the definition, without blank lines around it."""
    lines = new.replace("\r\n", "\n").strip("\n").split("\n")
    first = old.split("\n", 1)[0]
    shift = shift_between([lines[0]], [first], flat, lines)
    if shift is None:
        return "\n".join(lines)
    shifted = [shift.apply(line) for line in lines]
    if any(line is None for line in shifted):
        raise NoMatch(
            "`new` has a line that is indented less than its first one. Indent it as the file is.",
            reason="indentation",
        )
    return "\n".join(line for line in shifted if line is not None).rstrip()


async def _require_whole(code: _Code, start: int, new: str, after: str, workspace: Workspace) -> None:
    """Refuse what would not be one whole definition, or more of them, in that place."""
    data = after.encode("utf-8", "replace")
    parsed = await Index.of(workspace).parse(code.path, data, PARSE_S) if len(data) <= MAX_BYTES else None
    if parsed is None:
        raise EditError("The file with `new` in it cannot be parsed. Give the text to replace in `old`.")
    end = start + len(new.encode("utf-8", "replace"))
    inside = [one for one in parsed.symbols if start <= one.start and one.end <= end]
    last = max((one.end for one in inside), default=start)
    rest = data[last:end].decode("utf-8", "replace").strip(" \t\n;,")
    above = data[start : min((one.start for one in inside), default=end)].decode("utf-8", "replace")
    begins = all(not line.strip() or _BEFORE.match(line) for line in above.split("\n"))
    bodiless = parsed.language == "python" and new.endswith(":")  # which the parser takes for a whole one
    if not inside or rest or bodiless or not begins or parsed.errors > code.parsed.errors:
        flaw = (
            next((flaw.line for flaw in parsed.flaws), None) if parsed.errors > code.parsed.errors else None
        )
        where = f" (it would break the syntax near line {flaw})" if flaw else ""
        raise Refused(
            f"`new` is not a whole definition{where}. An edit that names a definition replaces all of it: "
            "give it complete, from its head to its end, or give the text to replace in `old`.",
            reason="not_whole",
        )
