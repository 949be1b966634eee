"""The `read` tool: numbered lines of one file."""

import asyncio
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from pydantic import Field

from tools.confinement import workspace_path
from tools.contents import Content, content, missing
from tools.encodings import SAMPLE, Binary, binary_kind
from tools.errors import InvalidArguments
from tools.files import MAX_FILE_BYTES, list_directory, open_file, stat
from tools.notebook import Notebook
from tools.result import Proposal, ToolResult
from tools.text import Text, visible
from tools.tool import Arguments, Progress, Tool
from tools.workspace import Workspace, content_hash

MAX_LINES: Final = 2_000
MAX_LINE: Final = 2_000
"""Characters of a line that are shown; the rest is clipped and counted."""
NOTE: Final = 400
"""Characters of a line of a notebook's output that are shown."""
LISTED: Final = 50
CHUNK: Final = 1 << 20
COUNTED: Final = 1 << 30
"""Bytes of a huge file whose lines are counted; what lies beyond is "more"."""


class ReadArguments(Arguments):
    path: str = Field(description="File, relative to the workspace.")
    start: int | None = Field(None, ge=1, description="First line, from 1.")
    end: int | None = Field(None, ge=1, description="Last line, inclusive.")


_INSTEAD: Final = {
    "image": "Images cannot be shown to the model; ask the user, or inspect it with a program.",
    "PDF": "Use the shell to get its text, as with pdftotext FILE -, or ask the user.",
    "archive": "Use the shell to list or unpack it, as with unzip -l FILE.",
    "database": "Use the shell to query it, as with sqlite3 FILE .schema, or a script.",
    "data": "Use the shell to unpack it to a pipe, as with zcat FILE | head.",
    "program": "Use the shell to inspect it (file, nm, strings).",
}
"""What to do with what is no text, by a word of its kind."""


@dataclass(slots=True)
class _Page:
    """Lines that are shown, up to the limits, and what was left out."""

    first: int
    limit: int
    text: list[str]
    lines: int = 0
    size: int = 0
    clipped: int = 0
    full: bool = False

    def take(self, line: str) -> bool:
        """Show one more line; False where a limit is reached and it was not taken."""
        shown = f"{self.first + self.lines}\t{visible(line, MAX_LINE)}"
        size = len(shown.encode("utf-8", "replace")) + 1
        if self.lines >= MAX_LINES or (self.text and self.size + size > self.limit):
            self.full = True
            return False
        self.text.append(shown)
        self.lines += 1
        self.size += size
        self.clipped += len(line) > MAX_LINE
        return True

    def note(self, lines: Iterable[str]) -> None:
        """Show lines that are none of the file, without numbers, as far as there is room."""
        for line in lines:
            shown = f"out\t{visible(line, NOTE)}"
            self.size += len(shown.encode("utf-8", "replace")) + 1
            if self.size > self.limit:
                return
            self.text.append(shown)

    @property
    def last(self) -> int:
        return self.first + self.lines - 1


class Read(Tool):
    """Read a text file as numbered lines.

    `start` and `end` choose a range. A long file is shown in part; the answer says how to go on. A notebook
    is shown as its cells, with what they put out; edit it in that form.
    """

    name = "read"
    kind = "read"
    read_only = True
    Arguments = ReadArguments

    async def propose(self, arguments: ReadArguments, workspace: Workspace) -> Proposal:
        path = await asyncio.to_thread(_checked, arguments, workspace)
        span = f" from line {arguments.start}" if arguments.start else ""
        return Proposal(f"Read {path}{span}", (path,), arguments.start)

    async def run(self, arguments: ReadArguments, workspace: Workspace, progress: Progress) -> ToolResult:
        result = await asyncio.to_thread(_read, arguments, workspace)
        workspace.seen.update(result.seen)
        return result


def _checked(arguments: ReadArguments, workspace: Workspace) -> str:
    """The path's name, for a file that can be read at all."""
    if arguments.start and arguments.end and arguments.end < arguments.start:
        raise InvalidArguments(f"end ({arguments.end}) is before start ({arguments.start}).")
    name = workspace_path(workspace.root, arguments.path)
    entry = stat(workspace.root, arguments.path)
    if entry is None:
        if name in workspace.buffers:
            return name
        raise missing(workspace, arguments.path)
    if entry.kind == "directory":
        names, count = list_directory(workspace.root, arguments.path, LISTED)
        more = f"\n… {count - len(names)} more" if count > len(names) else ""
        listing = "\n".join(visible(os.fsencode(name).decode("utf-8", "replace")) for name in names)
        raise InvalidArguments(
            f"{entry.path} is a directory. Read one of its files:\n{listing or '(it is empty)'}{more}"
        )
    return entry.path


def _read(arguments: ReadArguments, workspace: Workspace) -> ToolResult:
    path = _checked(arguments, workspace)
    entry = stat(workspace.root, arguments.path)
    unsaved = path in workspace.buffers
    if entry is not None and entry.size > MAX_FILE_BYTES and not unsaved:
        return _read_huge(arguments, workspace)
    current = content(workspace, arguments.path)
    try:
        text = Text.decode(current.data)
    except Binary as binary:
        raise _not_text(current.path, binary.kind, len(current.data)) from binary
    book = Notebook.of(current.path, current.data)
    outputs = {} if book is None else book.outputs()
    lines = (text.flat if book is None else book.view).split("\n")[:-1]
    first = arguments.start or 1
    if first > max(len(lines), 1):
        raise InvalidArguments(f"{current.path} has {len(lines)} lines; start is {first}.")
    page = _Page(first, workspace.output_limit, [])
    for number, line in enumerate(lines[first - 1 : arguments.end], first):
        if not page.take(line):
            break
        page.note(outputs.get(number, ()))
    return _shown(current, text, page, len(lines), book is not None)


def _shown(current: Content, text: Text, page: _Page, total: int, cells: bool) -> ToolResult:
    notes = _notes(page, str(total), page.last < total)
    if cells:
        notes.append("a notebook as cells: edit it in this form, without the lines marked out")
    if text.encoding.name != "UTF-8":
        notes.append(text.encoding.name)
    if current.unsaved:
        notes.append("the editor's unsaved text")
    return ToolResult(
        _framed(page, notes),
        seen={current.path: content_hash(current.data)},
        data={
            "start": page.first,
            "end": page.last,
            "lines": total,
            "clipped": page.clipped,
            "truncated": page.full,
            "encoding": text.encoding.name,
        },
    )


def _notes(page: _Page, total: str, more: bool) -> list[str]:
    notes: list[str] = []
    if more and page.full:
        notes.append(f"lines {page.first}-{page.last} of {total}; continue with start={page.last + 1}")
    elif more or page.first > 1:
        notes.append(f"lines {page.first}-{page.last} of {total}")
    if page.clipped:
        notes.append(f"{page.clipped} long line{'s' * (page.clipped > 1)} clipped")
    return notes


def _framed(page: _Page, notes: list[str]) -> str:
    body = "\n".join(page.text) or "(empty file)"
    return body + (f"\n({'; '.join(notes)})" if notes else "")


def _not_text(path: str, kind: str, size: int) -> InvalidArguments:
    instead = next((what for word, what in _INSTEAD.items() if word in kind), None)
    why = instead or "Use the shell to inspect it (file, xxd, strings)."
    return InvalidArguments(f"{path} is binary ({kind}, {size} bytes), not text. {why}", kind=kind, size=size)


def _read_huge(arguments: ReadArguments, workspace: Workspace) -> ToolResult:
    """A part of a file too large to be held; it counts as not seen, since it cannot be edited either."""
    with open_file(workspace.root, arguments.path) as (descriptor, entry):
        kind = binary_kind(os.pread(descriptor, SAMPLE, 0))
        if kind is not None:
            raise _not_text(entry.path, kind, entry.size)
        page = _Page(arguments.start or 1, workspace.output_limit, [])
        offset = _offset(descriptor, page.first)
        if offset is None:
            raise InvalidArguments(f"{entry.path} has fewer lines than start ({page.first}).")
        for line in _lines(descriptor, offset):
            if (arguments.end and page.last >= arguments.end) or not page.take(line):
                break
        total, exact = _count(descriptor)
    notes = _notes(page, f"{total}" if exact else f"more than {total}", page.last < total or not exact)
    notes.append(f"{entry.size} bytes: too large to edit with edit")
    data = {"start": page.first, "end": page.last, "clipped": page.clipped, "truncated": page.full}
    return ToolResult(_framed(page, notes), data={**data, "lines": total if exact else None})


def _offset(descriptor: int, line: int) -> int | None:
    """Where a line begins in a file, in bytes; None where the file is shorter."""
    missing_lines, at = line - 1, 0
    while missing_lines:
        chunk = os.pread(descriptor, CHUNK, at)
        if not chunk:
            return None
        count = chunk.count(b"\n")
        if count < missing_lines:
            missing_lines -= count
            at += len(chunk)
            continue
        position = -1
        for _ in range(missing_lines):
            position = chunk.index(b"\n", position + 1)
        return at + position + 1
    return at


def _lines(descriptor: int, at: int) -> Iterator[str]:
    """Lines from an offset on; of a line longer than a chunk only the beginning is kept."""
    held = b""
    while chunk := os.pread(descriptor, CHUNK, at):
        at += len(chunk)
        *whole, held = (held + chunk).split(b"\n")
        for line in whole:
            yield line.removesuffix(b"\r").decode("utf-8", "replace")
        held = held[:CHUNK]
    if held:
        yield held.decode("utf-8", "replace")


def _count(descriptor: int) -> tuple[int, bool]:
    """Lines of a file, and whether all of it was counted."""
    count = at = 0
    last = b""
    while at < COUNTED:
        chunk = os.pread(descriptor, CHUNK, at)
        if not chunk:
            return count + (bool(last) and last != b"\n"), True
        count += chunk.count(b"\n")
        at += len(chunk)
        last = chunk[-1:]
    return count, False
