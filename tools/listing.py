"""The `list` tool: what is in a folder, as a compact tree."""

import asyncio
import heapq
import os
import stat as modes
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from pydantic import Field

from tools.contents import missing
from tools.errors import EnvironmentFault, InvalidArguments, ToolError
from tools.files import stat
from tools.ignores import Ignores
from tools.result import Proposal, ToolResult
from tools.text import visible
from tools.tool import Arguments, Progress, Tool
from tools.walking import open_folder
from tools.workspace import Workspace

LINES: Final = 200
"""Entries shown."""
WIDE: Final = 100
"""Entries of a folder below the listed one that are shown; a larger one is only counted."""
DEADLINE: Final = 2.0
"""Seconds after which no further entry is looked at."""
DEEP: Final = 1.0
"""Seconds after which no further folder below the listed one is opened."""
OVERHEAD: Final = 16
"""Bytes that a line may take beside the name and the indentation."""


class ListArguments(Arguments):
    path: str | None = Field(None, description="Folder, relative to the workspace; without it, all of it.")


@dataclass(slots=True)
class _Entry:
    """An entry of a folder. `mark` is what is shown beside the name; `inside` what is below it."""

    name: str
    folder: bool
    mark: str = ""
    ignored: bool = False
    inside: "_Folder | None" = None


@dataclass(slots=True)
class _Folder:
    """The first entries of a folder by name, and how many of each kind there are (`exact`: all counted)."""

    path: str
    entries: list[_Entry] = field(default_factory=list)
    files: int = 0
    folders: int = 0
    exact: bool = True
    unreadable: bool = False

    @property
    def count(self) -> int:
        return self.files + self.folders

    @property
    def counted(self) -> str:
        if self.unreadable:
            return "cannot be read"
        parts = [
            f"{count:,} {word}{'s' * (count > 1)}"
            for count, word in ((self.files, "file"), (self.folders, "folder"))
            if count
        ]
        return ("" if self.exact else "more than ") + (", ".join(parts) or "empty")


class List(Tool):
    """List a folder as a tree: folders end with /, files have their size, links show their target.

    Goes as deep as fits into the answer; a folder that is not opened has its number of entries. What git
    ignores is marked and not opened, unless you list it itself. Says what it left out.
    """

    name = "list"
    kind = "search"
    read_only = True
    Arguments = ListArguments

    async def propose(self, arguments: ListArguments, workspace: Workspace) -> Proposal:
        path = await asyncio.to_thread(_start, arguments, workspace)
        return Proposal(f"List {visible(arguments.path or '.', 60)}", (path,))

    async def run(self, arguments: ListArguments, workspace: Workspace, progress: Progress) -> ToolResult:
        return await asyncio.to_thread(_list, arguments, workspace)


def _start(arguments: ListArguments, workspace: Workspace) -> str:
    path = arguments.path or "."
    entry = stat(workspace.root, path)
    if entry is None:
        raise missing(workspace, path)
    if entry.kind != "directory":
        raise InvalidArguments(f"{entry.path} is a {entry.kind}, not a folder. Use read to see a file.")
    if ".git" in entry.path.split("/"):
        raise InvalidArguments("Git's own folder is not listed. Use git commands in the shell.")
    return entry.path


def _list(arguments: ListArguments, workspace: Workspace) -> ToolResult:
    started = time.monotonic()
    top = _start(arguments, workspace)
    ignores = Ignores(workspace.root)
    open_all = ignores.ignored(top, folder=True)
    root = _scanned(workspace, top, LINES, started + DEADLINE)
    if root.unreadable:
        raise EnvironmentFault(f"{top} may not be read by this account. Ask the user.")
    budget = _Budget(LINES, workspace.output_limit - 400)
    budget.cut(root, 0)
    late = _opened(workspace, root, ignores, open_all, budget, started)
    lines = list(_lines(root, 0))
    left = root.count - len(root.entries)
    notes = []
    if left > 0:
        least = "" if root.exact else "at least "
        notes.append(f"incomplete: {least}{left:,} more entries of {top}; find files in it with glob")
    if late:
        notes.append(f"folders opened only for {DEEP:.0f} s; list one of them to see more")
    body = "\n".join(lines) or "(empty folder)"
    data = {"entries": root.count, "shown": len(lines), "incomplete": left > 0 or late}
    return ToolResult(body + (f"\n({'; '.join(notes)})" if notes else ""), data=data)


@dataclass(slots=True)
class _Budget:
    lines: int
    size: int

    def takes(self, folder: _Folder, depth: int) -> bool:
        """Take up a whole folder's entries, if they fit."""
        size = sum(_size(entry, depth) for entry in folder.entries)
        if len(folder.entries) > self.lines or size > self.size:
            return False
        self.lines -= len(folder.entries)
        self.size -= size
        return True

    def cut(self, folder: _Folder, depth: int) -> None:
        """Take up the entries of a folder that fit, and drop the others; at least one stays."""
        kept = 0
        for entry in folder.entries[: self.lines]:
            size = _size(entry, depth)
            if kept and size > self.size:
                break
            self.size -= size
            kept += 1
        self.lines -= kept
        del folder.entries[kept:]


def _size(entry: _Entry, depth: int) -> int:
    return len(entry.name.encode("utf-8", "surrogateescape")) + len(entry.mark) + 2 * depth + OVERHEAD


def _opened(
    workspace: Workspace, root: _Folder, ignores: Ignores, open_all: bool, budget: _Budget, started: float
) -> bool:
    """Open folders level by level as long as all of one's entries fit; True where time ran out."""
    level, depth, late = [root], 1, False
    while level:
        below: list[_Folder] = []
        for folder in level:
            for entry in folder.entries:
                path = entry.name if folder.path == "." else f"{folder.path}/{entry.name}"
                if not open_all:
                    entry.ignored = ignores.ignored(path, entry.folder)
                if not entry.folder or entry.ignored:
                    continue
                late = late or time.monotonic() - started > DEEP
                if late:
                    continue
                entry.inside = _scanned(workspace, path, WIDE, started + DEEP)
                inside = entry.inside
                if inside.exact and inside.count == len(inside.entries) and budget.takes(inside, depth):
                    below.append(inside)
                else:
                    inside.entries = []
        level, depth = below, depth + 1
    return late


def _scanned(workspace: Workspace, path: str, limit: int, until: float) -> _Folder:
    """A folder's first `limit` entries: folders before the rest, each by name. Holds no more than those."""
    folder = _Folder(path)
    try:
        with open_folder(workspace.root, path) as descriptor, os.scandir(descriptor) as found:
            first = heapq.nsmallest(limit, _counted(found, folder, until))
            folder.entries = [_described(descriptor, name, not rank) for rank, name in first]
    except (ToolError, OSError):
        folder.unreadable = True
    return folder


def _counted(
    found: "Iterator[os.DirEntry[str]]", folder: _Folder, until: float
) -> Iterator[tuple[bool, str]]:
    for entry in found:
        if entry.name == ".git":
            continue
        is_folder = entry.is_dir(follow_symlinks=False)
        if is_folder:
            folder.folders += 1
        else:
            folder.files += 1
        yield not is_folder, entry.name
        if folder.count % 1024 == 0 and time.monotonic() > until:
            folder.exact = False
            return


def _described(descriptor: int, name: str, is_folder: bool) -> _Entry:
    if is_folder:
        return _Entry(name, True)
    try:
        found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        if modes.S_ISLNK(found.st_mode):
            target = os.readlink(name, dir_fd=descriptor)
            return _Entry(name, False, "-> " + visible(target, 200))
    except OSError:
        return _Entry(name, False, "(gone)")
    if modes.S_ISREG(found.st_mode):
        return _Entry(name, False, _bytes(found.st_size))
    kinds = {modes.S_IFIFO: "FIFO", modes.S_IFSOCK: "socket"}
    return _Entry(name, False, f"({kinds.get(modes.S_IFMT(found.st_mode), 'device')})")


def _lines(folder: _Folder, depth: int) -> Iterator[str]:
    for entry in folder.entries:
        mark = entry.mark
        inside = entry.inside
        if inside is not None and not inside.entries:
            mark = f"({inside.counted})"
        if entry.ignored:
            mark = f"{mark} (ignored)".strip()
        name = visible(entry.name) + "/" * entry.folder
        yield "  " * depth + name + (f"  {mark}" if mark else "")
        if inside is not None:
            yield from _lines(inside, depth + 1)


def _bytes(size: int) -> str:
    if size < 1000:
        return f"{size} B"
    scaled = float(size)
    for unit in ("kB", "MB", "GB", "TB"):
        scaled /= 1000
        if scaled < 999.5 or unit == "TB":
            break
    return f"{scaled:.0f} {unit}" if scaled >= 10 else f"{scaled:.1f} {unit}"
