"""The `glob` tool: files whose path matches a pattern."""

import asyncio
import os
import stat as modes
import threading
import time
from bisect import insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Final

from pydantic import Field

from tools.contents import missing
from tools.errors import InvalidArguments, ToolError
from tools.files import stat
from tools.globbing import Pattern, patterns
from tools.ignores import Ignores
from tools.result import Proposal, ToolResult
from tools.text import visible
from tools.tool import Arguments, ProgramText, Progress, Tool
from tools.walking import Walk, files_below, open_folder
from tools.workspace import Workspace

SHOWN: Final = 500
DEADLINE: Final = 10.0
"""Seconds after which a walk is stopped and what it found is shown as incomplete."""
STARTS: Final = 20
"""Folders that the alternatives of one pattern may begin with."""


class GlobArguments(Arguments):
    pattern: ProgramText = Field(min_length=1, description="Such as **/*.py, src/*.{ts,tsx} or Makefile.")
    path: str | None = Field(None, description="Folder to look in, relative to the workspace.")


@dataclass(slots=True)
class _Found:
    """The first paths by name, and how many there are in all."""

    paths: list[str] = field(default_factory=list)
    count: int = 0
    stopped: bool = False
    complaint: str = ""
    known: set[str] | None = None
    """All of them, where one may be found twice."""

    def add(self, path: str) -> None:
        if self.known is not None:
            if path in self.known:
                return
            self.known.add(path)
        self.count += 1
        if len(self.paths) < SHOWN:
            insort(self.paths, path)
        elif path < self.paths[-1]:
            self.paths.pop()
            insort(self.paths, path)


class Glob(Tool):
    """Find files by their path: `**` spans folders, `*` stays in one, `{a,b}` are alternatives.

    Answers paths relative to the workspace, sorted by name. A pattern without a slash matches in any
    folder. Files that git ignores are left out unless the pattern or `path` names their folder, or the
    file itself. Only regular files are found: `list` shows folders and links.
    """

    name = "glob"
    kind = "search"
    read_only = True
    Arguments = GlobArguments

    async def propose(self, arguments: GlobArguments, workspace: Workspace) -> Proposal:
        await asyncio.to_thread(_start, arguments, workspace)
        where = f" in {arguments.path}" if arguments.path else ""
        return Proposal(f"Find {visible(arguments.pattern, 60)}{where}", (arguments.path or ".",))

    async def run(self, arguments: GlobArguments, workspace: Workspace, progress: Progress) -> ToolResult:
        stop = threading.Event()
        try:
            return await asyncio.to_thread(_glob, arguments, workspace, stop)
        finally:
            stop.set()


def _start(arguments: GlobArguments, workspace: Workspace) -> tuple[str, list[Pattern]]:
    """The canonical folder to look in, and the pattern's alternatives relative to it."""
    path, pattern = arguments.path or ".", arguments.pattern
    prefix = f"{workspace.root}/"
    if pattern.startswith(prefix) and arguments.path is None:
        pattern = pattern.removeprefix(prefix)
    elif pattern.startswith("/"):
        raise InvalidArguments(
            f"{pattern} is absolute. Give a pattern relative to the workspace, or to `path`."
        )
    entry = stat(workspace.root, path)
    if entry is None:
        raise missing(workspace, path)
    if entry.kind != "directory":
        raise InvalidArguments(
            f"{entry.path} is a {entry.kind}; `path` is a folder. Leave it out or name one."
        )
    found = patterns(pattern)
    if ".git" in (*entry.path.split("/"), *(name for one in found for name in one.base)):
        raise InvalidArguments("Git's own folder is not searched. Use git commands in the shell.")
    return entry.path, found


def _glob(arguments: GlobArguments, workspace: Workspace, stop: threading.Event) -> ToolResult:
    folder, alternatives = _start(arguments, workspace)
    deadline = time.monotonic() + DEADLINE
    ignores, found = Ignores(workspace.root), _Found()
    walks: dict[tuple[str, bool], list[Pattern]] = {}
    # A bare name also names the file of that name in the folder itself, ignored or not.
    alternatives += [Pattern((name,), (name,)) for one in alternatives if (name := one.name) is not None]
    if len(alternatives) > 1:
        found.known = set()
    for one in alternatives:
        base = _base(workspace, folder, one)
        if base is None:
            continue
        if one.literal:
            if _entry(workspace, base) == "file":
                found.add(base)
            continue
        rest = Pattern((), one.parts[len(one.base) :])
        walks.setdefault((base, ignores.ignored(base, folder=True)), []).append(rest)
    if len(walks) > STARTS:
        raise InvalidArguments(f"The pattern names {len(walks)} folders to look in; the most is {STARTS}.")
    for (start, all_files), group in walks.items():
        _walk(workspace, start, group, None if all_files else ignores, (deadline, stop), found)
    hidden = _Found()
    for (start, all_files), group in walks.items():
        if not found.count and not found.stopped and not all_files:
            _walk(workspace, start, group, None, (deadline, stop), hidden)
    return _shown(workspace, found, hidden)


def _base(workspace: Workspace, folder: str, one: Pattern) -> str | None:
    """The canonical place of a pattern's literal part (else of the folder itself) if something is there."""
    try:
        entry = stat(workspace.root, _joined(folder, *one.base))
    except ToolError:
        return None
    return None if entry is None else entry.path


def _entry(workspace: Workspace, path: str) -> str | None:
    try:
        entry = stat(workspace.root, path)
    except ToolError:
        return None
    return None if entry is None else entry.kind


def _walk(
    workspace: Workspace,
    start: str,
    group: list[Pattern],
    ignores: Ignores | None,
    until: tuple[float, threading.Event],
    found: _Found,
) -> None:
    """Add the files below `start` that match; the patterns are relative to it. Without `ignores`, all."""
    if _entry(workspace, start) != "directory":
        return
    walk = Walk()
    above = ignores if start != "." else None
    for below in files_below(workspace.root, start, ignores is None, *until, walk):
        names = below.split("/")
        if any(one.matches(names) for one in group):
            path = _joined(start, below)
            if above is None or not above.ignored(path, folder=False):
                found.add(path)
    found.stopped |= walk.stopped
    found.complaint = found.complaint or walk.complaint


def _joined(folder: str, *names: str) -> str:
    return "/".join(([] if folder == "." else [folder]) + [name for name in names if name]) or "."


def _shown(workspace: Workspace, found: _Found, hidden: _Found) -> ToolResult:
    lines: list[str] = []
    size = gone = 0
    for path, there in _verified(workspace.root, found.paths):
        if not there:
            gone += 1
            continue
        line = visible(path)
        size += len(line.encode()) + 1
        if lines and size > workspace.output_limit:
            break
        lines.append(line)
    rest = found.count - len(lines) - gone
    notes = list(_notes(found, len(lines), rest, gone, hidden))
    data = {"files": found.count, "shown": len(lines), "incomplete": found.stopped or rest > 0}
    return ToolResult("\n".join([*lines, f"({'; '.join(notes)})"] if notes else lines), data=data)


def _verified(root: Path, paths: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Each path and whether a regular file lies there, inside the workspace, right now.

    The walk was ripgrep's: a folder swapped for a link meanwhile could have led it elsewhere.
    """
    for folder, grouped in groupby(paths, key=lambda path: path.rpartition("/")[0]):
        group = list(grouped)
        try:
            with open_folder(root, folder or ".") as descriptor:
                for path in group:
                    yield path, _is_file(descriptor, path.rpartition("/")[2])
        except ToolError:
            yield from ((path, False) for path in group)


def _is_file(folder: int, name: str) -> bool:
    try:
        return modes.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _notes(found: _Found, shown: int, rest: int, gone: int, hidden: _Found) -> Iterable[str]:
    if found.stopped:
        yield f"incomplete: stopped after {DEADLINE:.0f} s; narrow it with `path` or a longer pattern"
    elif rest > 0:
        yield f"incomplete: first {shown} of {found.count} files by name; narrow it with `path`"
    elif not shown:
        yield "no file matches"
    if hidden.count:
        least = "at least " if hidden.stopped else ""
        examples = ", ".join(map(visible, hidden.paths[:3]))
        yield f"but {least}{hidden.count} that git ignores ({examples}): name their folder, or the file"
    if gone:
        yield f"{gone} changed meanwhile, left out"
    if found.complaint:
        yield f"not all could be read: {visible(found.complaint.splitlines()[0], 200)}"
