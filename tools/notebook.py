"""Notebooks as text: cells one below the other, and edits of that text put back into the JSON.

Each cell has a heading line, `# %% cell 3 [code]`, and below it its source. An edit may change sources,
delete a cell with its heading, or put in `# %% cell new [markdown]` with lines below it. In the file only
what was edited changes: other cells, outputs, metadata and the JSON's layout stay byte for byte.
"""

import base64
import json
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from tools.applying import Applied, EditError, NoMatch
from tools.encodings import Binary
from tools.text import Text, split_lines

OUTPUT_LINES: Final = 20
"""Lines of one cell's outputs that are shown."""

_HEADING: Final = re.compile(r"# %% cell (\d{1,9}|new) \[(code|markdown|raw)\]")
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_LIST: Final = re.compile(r"\[(\s*)\".*\"(\s*)\]", re.DOTALL)
_CONTROL: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_DECODER: Final = json.JSONDecoder()


@dataclass(slots=True)
class Cell:
    """A cell and where it and its source stand in the JSON text."""

    start: int
    end: int = 0
    kind: str = ""
    source: str = ""
    source_at: tuple[int, int] = (0, 0)
    outputs: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class Notebook:
    """The text of a notebook file, its cells, and where the list of cells stands in it, brackets included."""

    text: Text
    cells: tuple[Cell, ...]
    cells_at: tuple[int, int]
    has_ids: bool

    @classmethod
    def of(cls, path: str, data: bytes) -> "Notebook | None":
        """The notebook in a file; None where it is none that can be shown as cells, but plain text."""
        if not path.lower().endswith(".ipynb"):
            return None
        try:
            text = Text.decode(data)
            book = _parsed(text)
            view = book.view
            if "\0" in view or "\r" in view or len(_sections(view)) != len(book.cells):
                return None
            view.encode("utf-8")
        except (Binary, ValueError, RecursionError, IndexError, EditError):
            return None
        return book

    @cached_property
    def view(self) -> str:
        """The text that is read and edited."""
        return "".join(
            f"# %% cell {number} [{cell.kind}]\n" + (cell.source + "\n" if cell.source else "")
            for number, cell in enumerate(self.cells, 1)
        )

    def outputs(self) -> dict[int, list[str]]:
        """What the cells put out, as lines, by the line of the view (from 1) that they follow."""
        found: dict[int, list[str]] = {}
        line = 0
        for cell in self.cells:
            line += 1 + (cell.source.count("\n") + 1 if cell.source else 0)
            shown = [line for output in cell.outputs for line in _output(output)]
            if len(shown) > OUTPUT_LINES:
                rest = len(shown) - OUTPUT_LINES
                shown = [*shown[:OUTPUT_LINES], f"… {rest} more lines of output"]
            if shown:
                found[line] = shown
        return found

    def edited(self, view: str) -> bytes:
        """The file's bytes for an edited view.

        Raises:
            EditError: the headings do not fit the cells any more.
        """
        sections = _sections(view)
        known = [number for number, _, _ in sections if number is not None]
        if len(set(known)) != len(known) or any(not 1 <= number <= len(self.cells) for number in known):
            raise EditError(
                "A cell's heading is there twice or names no cell. New cells are headed # %% cell new [code]."
            )
        body, pieces = self.text.body, []
        for number, kind, source in sections:
            if number is None:
                pieces.append(self._made(kind, source))
                continue
            cell = self.cells[number - 1]
            if kind != cell.kind:
                raise EditError(
                    f"Cell {number} is [{cell.kind}]. To change that, delete it and put in a new cell."
                )
            start, end = cell.source_at
            written = body[start:end] if source == cell.source else self._source(source, body[start:end])
            pieces.append(body[cell.start : start] + written + body[end : cell.end])
        first, last = self.cells_at
        if not self.cells:
            inner = "\n  " + ",\n  ".join(pieces) + "\n " if pieces else ""
            return self.text.encode(body[: first + 1] + inner + body[last - 1 :])
        if known == list(range(1, len(self.cells) + 1)) and len(pieces) == len(known):
            gaps = [body[a.end : b.start] for a, b in zip(self.cells, self.cells[1:], strict=False)] + [""]
            inner = "".join(piece + gap for piece, gap in zip(pieces, gaps, strict=True))
        else:
            inner = self._gap.join(pieces)
        return self.text.encode(body[: self.cells[0].start] + inner + body[self.cells[-1].end :])

    @cached_property
    def _gap(self) -> str:
        """What stands between two cells."""
        if len(self.cells) > 1:
            return self.text.body[self.cells[0].end : self.cells[1].start]
        return "," + (self.text.body[self.cells_at[0] + 1 : self.cells[0].start] if self.cells else "\n  ")

    @cached_property
    def _ascii(self) -> bool:
        return self.text.body.isascii() and "\\u" in self.text.body

    def _dumped(self, value: Any) -> str:
        return json.dumps(value, ensure_ascii=self._ascii)

    def _source(self, source: str, old: str) -> str:
        """A source in the form of the one that it replaces: a text, or a list of lines laid out alike."""
        if old.startswith('"'):
            return self._dumped(source)
        lines = split_lines(source)
        if not lines:
            return "[]"
        samples = (old, *(self.text.body[slice(*cell.source_at)] for cell in self.cells[:50]))
        layout = next((found for sample in samples if (found := _LIST.fullmatch(sample))), None)
        opening, closing = (layout[1], layout[2]) if layout else ("\n    ", "\n   ")
        return "[" + opening + ("," + (opening or " ")).join(map(self._dumped, lines)) + closing + "]"

    def _made(self, kind: str, source: str) -> str:
        """The JSON of a new cell, laid out like the others."""
        cell: dict[str, Any] = {"cell_type": kind}
        if kind == "code":
            cell |= {"execution_count": None}
        if self.has_ids:
            cell |= {"id": secrets.token_hex(4)}
        cell |= {"metadata": {}}
        if kind == "code":
            cell |= {"outputs": []}
        cell |= {"source": split_lines(source)}
        margin = self._gap.rpartition("\n")[2] if "\n" in self._gap else None
        if margin is None:
            return self._dumped(cell)
        unit = max(len(margin) // 2, 1)
        return json.dumps(cell, ensure_ascii=self._ascii, indent=unit).replace("\n", "\n" + margin)


def through_cells(path: str, data: bytes, apply: Callable[[bytes], Applied]) -> tuple[Applied, bytes]:
    """Apply an edit to a file's content, or to the cells of a notebook; with it, the file's new bytes.

    An edit of a notebook that fits its JSON exactly, and not the cells, is one of the JSON.
    """
    book = Notebook.of(path, data)
    if book is None:
        applied = apply(data)
        return applied, applied.data
    try:
        applied = apply(book.view.encode("utf-8"))
    except NoMatch as miss:
        try:
            applied = apply(data)
        except EditError:
            raise miss from None
        if any(hunk.tier != "exact" for hunk in applied.hunks):
            raise miss from None
        return applied, applied.data
    return applied, book.edited(applied.data.decode("utf-8"))


def _sections(view: str) -> list[tuple[int | None, str, str]]:
    """Number, kind and source of each cell of a view."""
    lines = view.removesuffix("\n").split("\n") if view else []
    heads = [(at, found) for at, line in enumerate(lines) if (found := _HEADING.fullmatch(line))]
    if lines and (not heads or heads[0][0] != 0):
        raise EditError("A notebook begins with the heading of a cell, such as # %% cell new [code].")
    ends = [at for at, _ in heads[1:]] + [len(lines)] * bool(heads)
    return [
        (None if found[1] == "new" else int(found[1]), found[2], "\n".join(lines[at + 1 : end]))
        for (at, found), end in zip(heads, ends, strict=True)
    ]


def _parsed(text: Text) -> Notebook:
    """The cells with their places.

    Raises:
        ValueError: it is no JSON, or not that of a notebook.
    """
    body = text.body
    cells: list[Cell] | None = None
    place, version = (0, 0), (0, 0)
    for name, at in _members(body, _skip(body, 0)):
        if name == "cells" and body[at] == "[":
            cells = []
            end = _cells(body, at, cells)
            place = (at, end)
        elif name in ("nbformat", "nbformat_minor"):
            value = _DECODER.raw_decode(body, at)[0]
            version = (value, version[1]) if name == "nbformat" else (version[0], value)
    if cells is None or version[0] != 4 or not isinstance(version[1], int):
        raise ValueError("no notebook of format 4")
    return Notebook(text, tuple(cells), place, version[1] >= 5)


def _members(body: str, at: int) -> Iterator[tuple[str, int]]:
    """The names of an object's members and where their values begin."""
    if body[at] != "{":
        raise ValueError("no object")
    at = _skip(body, at + 1)
    while body[at] != "}":
        name, at = _DECODER.raw_decode(body, at)
        at = _skip(body, at)
        if not isinstance(name, str) or body[at] != ":":
            raise ValueError("no member")
        at = _skip(body, at + 1)
        yield name, at
        _, at = _DECODER.raw_decode(body, at)
        at = _skip(body, at)
        if body[at] == ",":
            at = _skip(body, at + 1)


def _cells(body: str, at: int, cells: list[Cell]) -> int:
    at = _skip(body, at + 1)
    while body[at] != "]":
        cell = Cell(at)
        for name, value_at in _members(body, at):
            if name not in ("cell_type", "source", "outputs"):
                continue
            value, end = _DECODER.raw_decode(body, value_at)
            if name == "cell_type":
                cell.kind = value
            elif name == "outputs":
                cell.outputs = value if isinstance(value, list) else []
            else:
                lines = [value] if isinstance(value, str) else value
                if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
                    raise ValueError("no source")
                cell.source = "".join(lines)
                cell.source_at = (value_at, end)
        if cell.kind not in ("code", "markdown", "raw") or not cell.source_at[1]:
            raise ValueError("no cell")
        _, cell.end = _DECODER.raw_decode(body, at)
        cells.append(cell)
        at = _skip(body, cell.end)
        if body[at] == ",":
            at = _skip(body, at + 1)
    return at + 1


def _skip(body: str, at: int) -> int:
    found = _SPACE.match(body, at)
    return found.end() if found else at


def _output(output: Any) -> list[str]:
    """One output as lines: text as it is, anything else by its name."""
    if not isinstance(output, dict):
        return []
    if "text" in output:
        return _plain(output["text"])
    if "ename" in output:
        return [f"{output['ename']}: {_joined(output.get('evalue'))}"]
    data = output.get("data")
    if not isinstance(data, dict):
        return []
    lines = _plain(data.get("text/plain", ""))
    for name, value in data.items():
        if name != "text/plain" and isinstance(value, str | list):
            lines.append(f"[{name}, {_size(name, _joined(value))} bytes, not shown]")
    return lines


def _plain(value: Any) -> list[str]:
    text = _CONTROL.sub("", _joined(value))
    return text.removesuffix("\n").split("\n") if text else []


def _joined(value: Any) -> str:
    return "".join(map(str, value)) if isinstance(value, list) else str(value or "")


def _size(name: str, value: str) -> int:
    if name.startswith("image/") and "svg" not in name:
        try:
            return len(base64.b64decode(value))
        except ValueError:
            return len(value)
    return len(value)
