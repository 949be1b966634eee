"""The `symbols` tool: outlines, definitions and uses, from the workspace's index."""

import asyncio
import re
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import Field

from tools.contents import content, missing
from tools.encodings import Binary
from tools.errors import EnvironmentFault, InvalidArguments, ToolError
from tools.files import Entry, read_bytes, stat
from tools.index import Index
from tools.index.parsing import MAX_BYTES, Parsed
from tools.index.queries import (
    Definition,
    Found,
    Scope,
    UsesInFile,
    coverage,
    definitions,
    outline,
    uses,
)
from tools.index.symbol import Symbol
from tools.result import Proposal, ToolResult
from tools.text import Text, visible
from tools.tool import Arguments, Progress, Tool
from tools.workspace import Workspace

DEFINITIONS: Final = 50
OUTLINE: Final = 500
USES: Final = 100
USING_FILES: Final = 60
"""How many are shown."""
WAIT_S: Final = 8.0
"""Seconds to wait for a cold index before an incomplete answer is given."""
LINE: Final = 200

_IDENTIFIER: Final = re.compile(r"[^\W\d][\w$]*[?!=]?|\$[\w$]+")


SymbolKind = Literal[
    "reference", "module", "class", "interface", "struct", "enum", "union", "type", "function", "method",
    "field", "variable", "constant", "macro",
]  # fmt: skip


class SymbolsArguments(Arguments):
    query: str | None = Field(
        None,
        min_length=1,
        max_length=300,
        description="Name, such as `parse`, `Parser.parse` or `Parser::parse`.",
    )
    path: str | None = Field(None, description="File or folder to look in, relative to the workspace.")
    kind: SymbolKind | None = Field(
        None, description="Only definitions of this kind; `reference`: the lines that use the name."
    )


class Symbols(Tool):
    """Find where names are defined and used in the code.

    With only `path`: the outline of a file (all it defines, with line spans), or of the files in a folder.
    With `query`: definitions of that name, else of names that begin with it, else of names it abbreviates
    (`gUN` finds getUserName). With `query` and kind `reference`: each line of code that uses exactly that
    name, comments and strings left out. Knows Python, TypeScript, JavaScript, Go, Rust, Java, C, C++, C#,
    Ruby, PHP, Kotlin, Swift, Scala, Lua and shell scripts; for all other text use grep.
    """

    name = "symbols"
    kind = "search"
    read_only = True
    Arguments = SymbolsArguments

    async def propose(self, arguments: SymbolsArguments, workspace: Workspace) -> Proposal:
        await asyncio.to_thread(_start, arguments, workspace)
        if arguments.query is None:
            return Proposal(f"Outline {visible(arguments.path or '.', 80)}", (arguments.path or ".",))
        verb = "uses" if arguments.kind == "reference" else "definitions"
        return Proposal(f"Find {verb} of {visible(arguments.query, 60)}", (arguments.path or ".",))

    async def run(self, arguments: SymbolsArguments, workspace: Workspace, progress: Progress) -> ToolResult:
        entry = await asyncio.to_thread(_start, arguments, workspace)
        index = Index.of(workspace)
        if arguments.query is None and (entry is None or entry.kind == "file"):
            return await _file_outline(arguments, workspace, index)
        state = await index.refresh(timeout_s=WAIT_S)
        if state.phase == "unavailable":
            raise EnvironmentFault(f"There is no index of this workspace: {state.message}. Use grep instead.")
        answer = await asyncio.to_thread(_ask, arguments, workspace, index, entry)
        notes = [*answer.notes, *state.notes()]
        if unsaved := _unsaved(workspace, entry):
            notes.append(f"open in the editor, looked at as saved on disk: {', '.join(unsaved)}")
        lines = [*answer.lines, *([f"({'; '.join(notes)})"] if notes else [])]
        return ToolResult(
            "\n".join(lines),
            data={
                "found": answer.total,
                "shown": answer.shown,
                "complete": state.complete,
                "files": state.done,
            },
        )


@dataclass(slots=True)
class _Answer:
    """Lines to show, what to say about them, how many there were and how many are shown."""

    lines: list[str]
    notes: list[str]
    total: int
    shown: int


def _start(arguments: SymbolsArguments, workspace: Workspace) -> Entry | None:
    """What lies at the path; None for a file that only an editor has."""
    if arguments.query is None and arguments.path is None:
        raise InvalidArguments("symbols needs a query (a name) or a path (to outline a file or folder).")
    if arguments.kind == "reference" and arguments.query is None:
        raise InvalidArguments("To find references, give the name as query.")
    if arguments.kind == "reference" and not _IDENTIFIER.fullmatch(_last_name(arguments.query or "")):
        raise InvalidArguments(
            f"{arguments.query!r} is no identifier; references are found by name. For other text use grep."
        )
    path = arguments.path or "."
    entry = stat(workspace.root, path)
    if entry is None:
        if path in workspace.buffers and arguments.query is None:
            return None
        raise missing(workspace, path)
    if entry.kind not in ("file", "directory"):
        raise InvalidArguments(f"{entry.path} is a {entry.kind}; give a folder or a regular file.")
    return entry


def _last_name(query: str) -> str:
    return re.split(r"::|[.#\\]|->", query.strip())[-1]


def _unsaved(workspace: Workspace, entry: Entry | None) -> list[str]:
    scope = entry.path if entry is not None else "."
    inside = [path for path in workspace.buffers if scope in (".", path) or path.startswith(scope + "/")]
    return sorted(inside)[:5]


async def _file_outline(arguments: SymbolsArguments, workspace: Workspace, index: Index) -> ToolResult:
    """Parsed as it is now, unsaved text and ignored files too; the index is not needed."""
    now = await asyncio.to_thread(content, workspace, arguments.path or "")
    if len(now.data) > MAX_BYTES:
        raise InvalidArguments(
            f"{now.path} is {len(now.data)} bytes; files up to {MAX_BYTES // 1000} kB are outlined. Use grep."
        )
    try:
        data = await asyncio.to_thread(lambda: Text.decode(now.data).flat.encode("utf-8", "replace"))
    except Binary as error:
        raise InvalidArguments(f"{now.path} is binary ({error.kind}); it defines nothing.") from error
    parsed = await index.parse(now.path, data, WAIT_S)
    if parsed is None:
        raise InvalidArguments(
            f"{now.path} cannot be outlined: its language is not known here, or its parser failed. Read it, "
            "or use grep."
        )
    return _outlined(arguments, workspace, now.path, parsed)


def _outlined(arguments: SymbolsArguments, workspace: Workspace, path: str, parsed: Parsed) -> ToolResult:
    chosen = [one for one in parsed.symbols if arguments.kind in (None, one.kind)]
    lines = [visible(path)]
    size = 0
    for one in chosen[:OUTLINE]:
        line = _symbol_line(one)
        size += len(line.encode("utf-8", "replace")) + 1
        if size > workspace.output_limit:
            break
        lines.append(line)
    notes: list[str] = []
    shown = len(lines) - 1
    if not chosen:
        notes.append(f"no {arguments.kind or 'definition'} found")
    elif shown < len(chosen):
        notes.append(f"incomplete: the first {shown} of {len(chosen)}; ask by name or kind")
    if parsed.cut:
        notes.append("incomplete: the file defines more than is looked at")
    if parsed.errors:
        first = parsed.flaws[0].line if parsed.flaws else 0
        notes.append(f"the syntax is broken near line {first}; what follows may be missing")
    return ToolResult(
        "\n".join([*lines, *([f"({'; '.join(notes)})"] if notes else [])]),
        data={"found": len(chosen), "shown": shown, "language": parsed.language, "errors": parsed.errors},
    )


def _symbol_line(one: Symbol) -> str:
    depth = len(re.split(r"::|\.", one.container)) if one.container else 0
    head = f"{_span(one.line, one.last_line)} {visible(one.signature, LINE)}"
    return "  " * min(depth, 8) + head + _doc(one.doc)


def _span(line: int, last: int) -> str:
    return str(line) if last <= line else f"{line}-{last}"


def _doc(doc: str) -> str:
    return f"  — {visible(doc, 100)}" if doc else ""


def _ask(arguments: SymbolsArguments, workspace: Workspace, index: Index, entry: Entry | None) -> _Answer:
    scope = Scope(entry.path if entry is not None else ".", None)
    try:
        with closing(index.connect()) as db:
            if arguments.kind == "reference":
                name = _last_name(arguments.query or "")
                found = uses(db, name.rstrip("?!="), scope)
                return _references(workspace, name, found, coverage(db, scope))
            scope = Scope(scope.path, arguments.kind)
            if arguments.query is None:
                rows, total = outline(db, scope, OUTLINE)
                return _folder(workspace, rows, total, coverage(db, scope))
            named = definitions(db, arguments.query, scope, DEFINITIONS)
            return _defined(workspace, arguments, named, (0, {}) if named.total else coverage(db, scope))
    except sqlite3.Error as error:
        raise EnvironmentFault(
            f"The index cannot be read ({error}). Ask again in a moment, or use grep."
        ) from error


def _defined(
    workspace: Workspace, arguments: SymbolsArguments, found: Found, covered: tuple[int, dict[str, int]]
) -> _Answer:
    lines = _fitting(
        workspace,
        [
            f"{visible(one.path)}:{_span(one.line, one.last_line)} "
            f"{_within(one)}{visible(one.signature, LINE)}{_doc(one.doc)}"
            for one in found.definitions
        ],
    )
    notes: list[str] = []
    if not found.total:
        what = f"{arguments.kind} " if arguments.kind else "definition of "
        notes += [f"no {what}{arguments.query!r} in {covered[0]} files", *_elsewhere(covered[1])]
    else:
        if found.match == "prefix":
            notes.append("no definition of exactly that name; these begin with it")
        elif found.match == "abbreviation":
            notes.append("no definition of that name; it may abbreviate these")
        if len(lines) < found.total:
            notes.append(f"incomplete: the best {len(lines)} of {found.total}; narrow with path or kind")
        if found.more:
            rest = f" and {len(found.more) - 8} more" if len(found.more) > 8 else ""
            notes.append(f"also defined: {visible(', '.join(found.more[:8]), 300)}{rest}")
    return _Answer(lines, notes, found.total, len(lines))


def _within(one: Definition) -> str:
    return f"[{visible(one.container, 80)}] " if one.container else ""


def _folder(
    workspace: Workspace, found: list[Definition], total: int, covered: tuple[int, dict[str, int]]
) -> _Answer:
    rows: list[str] = []
    path = None
    for one in found:
        if one.path != path:
            path = one.path
            rows.append(visible(path))
        rows.append(
            f"  {_span(one.line, one.last_line)} {_within(one)}{visible(one.signature, LINE)}{_doc(one.doc)}"
        )
    lines = _fitting(workspace, rows)
    shown = sum(line.startswith("  ") for line in lines)
    notes = [f"{total} in {covered[0]} files"] if total else [f"nothing is defined in {covered[0]} files"]
    if shown < total:
        notes = [
            f"incomplete: the first {shown} of {total} definitions; outline a smaller folder or one file"
        ]
    return _Answer(lines, [*notes, *_elsewhere(covered[1])], total, shown)


def _references(
    workspace: Workspace, name: str, found: list[UsesInFile], covered: tuple[int, dict[str, int]]
) -> _Answer:
    """The lines are read from the files, so that only what is there now is shown."""
    word = re.compile(rf"(?<![\w$]){re.escape(name)}(?![\w$])")
    total = sum(len(one.lines) for one in found)
    rows: list[str] = []
    shown = changed = 0
    for one in found[:USING_FILES]:
        try:
            texts = _lines(workspace, one.path)
        except ToolError:
            changed += len(one.lines)
            continue
        here: list[str] = []
        for number in one.lines:
            text = texts[number - 1] if number <= len(texts) else ""
            if not word.search(text):
                changed += 1
            elif shown + len(here) < USES:
                mark = "=" if number in one.defined else ":"
                here.append(f"{number}{mark}{visible(text.strip(), LINE)}")
        if here:
            rows += [visible(one.path), *here]
            shown += len(here)
        if shown >= USES:
            break
    lines = _fitting(workspace, rows)
    shown = sum(line[:1].isdigit() for line in lines) if len(lines) < len(rows) else shown
    notes: list[str] = []
    if not total:
        notes += [f"no use of {name!r} in {covered[0]} files", *_elsewhere(covered[1])]
    elif shown < total - changed:
        notes.append(
            f"incomplete: the first {shown} of {total} lines in {len(found)} files; narrow with path"
        )
    else:
        notes.append(f"{shown} lines in {len(found)} files; = marks definitions")
    return _Answer(lines, notes, total, shown)


def _lines(workspace: Workspace, path: str) -> list[str]:
    data, _ = read_bytes(workspace.root, path, MAX_BYTES)
    return data.decode("utf-8", "replace").split("\n")


def _elsewhere(others: dict[str, int]) -> list[str]:
    """What an answer that found too little says about the files it did not look into."""
    if not others:
        return []
    listed = ", ".join(f"{count} {visible(ending, 20)}" for ending, count in list(others.items())[:6])
    return [f"files in other languages are not looked into ({listed}): use grep for those"]


def _fitting(workspace: Workspace, lines: list[str]) -> list[str]:
    size = 0
    for count, line in enumerate(lines):
        size += len(line.encode("utf-8", "replace")) + 1
        if size > workspace.output_limit:
            return lines[: max(count, 1)]
    return lines
