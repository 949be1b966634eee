"""The `move` tool: a file, link or folder gets another name; nothing is ever overwritten."""

import asyncio
import errno
import os
import stat as modes
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import Field

from tools.confinement import workspace_path
from tools.contents import missing
from tools.errors import EnvironmentFault, InvalidArguments
from tools.files import NotFound, explained, make_parents, remove_empty, stat
from tools.finishing import finished
from tools.protected import require_unprotected
from tools.relocation import Held, changes_of, entry_at, held, rename_new
from tools.result import FileChange, Proposal, ToolResult
from tools.staging import sync
from tools.tool import Arguments, Progress, Tool
from tools.workspace import Workspace


class MoveArguments(Arguments):
    source: str = Field(description="File or folder, relative to the workspace.")
    target: str = Field(description="Its whole new path, which nothing has yet. Missing folders are made.")


@dataclass(frozen=True, slots=True)
class _Prepared:
    source: str
    target: str
    files: dict[str, Held]

    def renamed(self, path: str) -> str:
        return self.target + path[len(self.source) :]

    @property
    def changes(self) -> tuple[FileChange, ...]:
        made: list[FileChange] = []
        for path, one in self.files.items():
            made.append(FileChange(path, one.data, None))
            made.append(FileChange(self.renamed(path), None, one.data, modes.S_IMODE(one.mode)))
        return tuple(made)


class Move(Tool):
    """Move or rename a file or folder within the workspace.

    `target` is the whole new path, never the folder to put it into. Nothing is overwritten.
    """

    name = "move"
    kind = "move"
    Arguments = MoveArguments

    async def propose(self, arguments: MoveArguments, workspace: Workspace) -> Proposal:
        await _refresh(arguments, workspace)
        prepared = await asyncio.to_thread(_prepare, arguments, workspace)
        title = f"Move {prepared.source} to {prepared.target}"
        return Proposal(title, (prepared.source, prepared.target), changes=prepared.changes)

    async def run(self, arguments: MoveArguments, workspace: Workspace, progress: Progress) -> ToolResult:
        await _refresh(arguments, workspace)
        prepared = await finished(lambda check: _move(arguments, workspace, check))
        seen: dict[str, str] = {}
        for path in [path for path in workspace.seen if f"{path}/".startswith(f"{prepared.source}/")]:
            seen[prepared.renamed(path)] = workspace.seen.pop(path)
        workspace.seen.update(seen)
        count = len(prepared.files)
        what = f" ({count} files)" if count > 1 else ""
        return ToolResult(
            f"Moved {prepared.source} to {prepared.target}{what}.",
            prepared.changes,
            seen=seen,
            data={"moved": {prepared.source: prepared.target}, "files": count},
        )


async def _refresh(arguments: MoveArguments, workspace: Workspace) -> None:
    if workspace.refresh is not None:
        await workspace.refresh(arguments.source)


def _prepare(arguments: MoveArguments, workspace: Workspace) -> _Prepared:
    root = workspace.root
    try:
        with explained(arguments.source), entry_at(root, arguments.source) as source:
            entries = held(source, "moved")
            path = source.path
    except NotFound:
        raise missing(workspace, arguments.source) from None
    files = changes_of(workspace, path, entries, "moved")
    target = workspace_path(root, arguments.target)
    if target == ".":
        raise InvalidArguments("The target is the workspace itself. Give the whole new path.")
    try:
        with explained(arguments.target), entry_at(root, arguments.target) as place:
            target = place.path
            try:
                there = os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)
            except FileNotFoundError:
                there = None
    except NotFound:
        there = None
        target = _made_later(workspace, target)
    if target == path:
        raise InvalidArguments(f"{path} has that name already.")
    if there is not None:
        hint = f"{target}/{path.rpartition('/')[2]}" if modes.S_ISDIR(there.st_mode) else "another name"
        raise InvalidArguments(
            f"{target} exists already, and nothing is overwritten. Give {hint} as target, or delete it first."
        )
    if target.startswith(path + "/"):
        raise InvalidArguments(f"{path} cannot be moved into itself.")
    return _Prepared(path, target, files)


def _made_later(workspace: Workspace, target: str) -> str:
    """The canonical form of a path some folders of which are still to be made."""
    parts = target.split("/")
    for count in range(len(parts) - 1, 0, -1):
        entry = stat(workspace.root, "/".join(parts[:count]))
        if entry is not None:
            if entry.kind != "directory":
                raise InvalidArguments(f"{entry.path} is a {entry.kind}, not a folder.")
            canonical = "/".join(([] if entry.path == "." else [entry.path]) + parts[count:])
            break
    else:
        canonical = target
    require_unprotected(canonical)
    return canonical


def _move(arguments: MoveArguments, workspace: Workspace, check: Callable[[], None]) -> _Prepared:
    prepared = _prepare(arguments, workspace)
    root = workspace.root
    made = make_parents(root, prepared.target)
    try:
        with (
            explained(prepared.target, writing=True),
            entry_at(root, prepared.source) as source,
            entry_at(root, prepared.target) as target,
        ):
            check()
            try:
                rename_new(source, target)
            except FileExistsError:
                raise InvalidArguments(
                    f"{target.path} was made by somebody else meanwhile; nothing was moved."
                ) from None
            except OSError as error:
                if error.errno == errno.EXDEV:
                    raise EnvironmentFault(
                        f"{target.path} lies on another file system than {source.path}, so it cannot be "
                        "moved in one step. Copy it with the shell."
                    ) from error
                raise
            sync(source)
            sync(target)
    except BaseException:
        remove_empty(root, made)
        raise
    return prepared
