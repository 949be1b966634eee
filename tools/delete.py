"""The `delete` tool: a file, a link, or a folder that is named as one."""

import asyncio
import os
import shutil
import stat as modes
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import Field

from tools.confinement import Place
from tools.contents import missing
from tools.errors import EnvironmentFault, InvalidArguments
from tools.files import Changed, NotFound, create, explained
from tools.finishing import finished
from tools.relocation import Held, below, changes_of, entry_at, held, rename_new
from tools.result import FileChange, Proposal, ToolResult
from tools.staging import sync, temporary_name
from tools.tool import Arguments, Progress, Tool
from tools.workspace import Workspace


class DeleteArguments(Arguments):
    path: str = Field(description="File, relative to the workspace; a folder ends with /.")


@dataclass(frozen=True, slots=True)
class _Prepared:
    path: str
    entries: list[Held]
    files: dict[str, Held]

    @property
    def changes(self) -> tuple[FileChange, ...]:
        return tuple(FileChange(path, one.data, None) for path, one in self.files.items())

    @property
    def title(self) -> str:
        if self.entries[0].kind != modes.S_IFDIR:
            return f"Delete {self.path}"
        count = len(self.files)
        return f"Delete {self.path}/ with {count} file{'s' * (count != 1)}"


class Delete(Tool):
    """Delete a file, or a folder with all that is in it.

    A folder is named with a slash at its end. A symbolic link is deleted itself, never what it leads to.
    """

    name = "delete"
    kind = "delete"
    Arguments = DeleteArguments

    async def propose(self, arguments: DeleteArguments, workspace: Workspace) -> Proposal:
        prepared = await asyncio.to_thread(_prepare, arguments, workspace)
        return Proposal(prepared.title, (prepared.path,), changes=prepared.changes)

    async def run(self, arguments: DeleteArguments, workspace: Workspace, progress: Progress) -> ToolResult:
        prepared = await finished(lambda check: _delete(arguments, workspace, check))
        for path in [path for path in workspace.seen if f"{path}/".startswith(f"{prepared.path}/")]:
            del workspace.seen[path]
        return _result(prepared)


def _prepare(arguments: DeleteArguments, workspace: Workspace) -> _Prepared:
    try:
        with explained(arguments.path), entry_at(workspace.root, arguments.path) as place:
            return _looked_at(arguments, workspace, place)
    except NotFound:
        raise missing(workspace, arguments.path) from None


def _looked_at(arguments: DeleteArguments, workspace: Workspace, place: Place) -> _Prepared:
    mode = os.stat(place.name, dir_fd=place.directory, follow_symlinks=False).st_mode
    named = arguments.path.endswith("/")
    if modes.S_ISDIR(mode) and not named:
        raise InvalidArguments(
            f"{place.path} is a folder. To delete it and all in it, name it with a slash: {place.path}/"
        )
    if named and not modes.S_ISDIR(mode):
        raise InvalidArguments(f"{place.path} is no folder. Name it without the slash to delete it.")
    entries = held(place, "deleted")
    return _Prepared(place.path, entries, changes_of(workspace, place.path, entries, "deleted"))


def _delete(arguments: DeleteArguments, workspace: Workspace, check: Callable[[], None]) -> _Prepared:
    """Take the entry out of sight in one step, see that it is what was looked at, then remove it."""
    with explained(arguments.path, writing=True), entry_at(workspace.root, arguments.path) as place:
        prepared = _looked_at(arguments, workspace, place)
        _require_removable(place, prepared)
        check()
        name = temporary_name()
        aside = Place(place.directory, name, place.path)
        kept = rename_new(place, aside)
        try:
            there = [_same(one, kept) for one in held(aside, "deleted")]
            if there != [_same(one, kept) for one in prepared.entries]:
                raise Changed(f"{place.path} changed while it was being deleted; it was left. Look again.")
            if prepared.entries[0].kind == modes.S_IFDIR:
                shutil.rmtree(name, dir_fd=place.directory)
            else:
                os.unlink(name, dir_fd=place.directory)
        except BaseException:
            _put_back(workspace, place, aside, prepared)
            raise
        sync(place)
        return prepared


def _same(one: Held, kept: bool) -> tuple[object, ...]:
    """What tells an entry from another; what was made anew has only its content in common."""
    return one.path, one.mode, one.identity if kept else one.data, one.target


def _require_removable(place: Place, prepared: _Prepared) -> None:
    """Say beforehand what would stop the removal half-way."""
    for one in prepared.entries:
        path = below(place.name, one.path)
        if one.kind == modes.S_IFDIR and not os.access(
            path, os.W_OK | os.X_OK, dir_fd=place.directory, follow_symlinks=False
        ):
            raise EnvironmentFault(
                f"{below(place.path, one.path)} is a folder that this account may not write to; nothing was "
                "deleted. Ask the user."
            )


def _put_back(workspace: Workspace, place: Place, aside: Place, prepared: _Prepared) -> None:
    """The entry under its old name again, with what was removed of it already."""
    rename_new(aside, place)
    for one in prepared.entries:
        path = below(prepared.path, one.path)
        try:
            with entry_at(workspace.root, path) as missing_place:
                if one.target is not None:
                    os.symlink(one.target, missing_place.name, dir_fd=missing_place.directory)
                elif one.kind == modes.S_IFDIR:
                    os.mkdir(missing_place.name, modes.S_IMODE(one.mode), dir_fd=missing_place.directory)
        except FileExistsError:
            continue
        if one.data is not None:
            try:
                create(workspace.root, path, one.data, modes.S_IMODE(one.mode))
            except Changed:
                continue  # it was not removed


def _result(prepared: _Prepared) -> ToolResult:
    links = {below(prepared.path, one.path): one.target for one in prepared.entries if one.target is not None}
    folders = [below(prepared.path, one.path) for one in prepared.entries if one.kind == modes.S_IFDIR]
    others = len(prepared.entries) - len(prepared.files) - len(links) - len(folders)
    if folders:
        parts = [
            f"{count} {word}{'s' * (count != 1)}"
            for count, word in ((len(prepared.files), "file"), (len(links), "link"), (others, "special file"))
            if count or word == "file"
        ]
        text = f"Deleted {prepared.path}/ ({', '.join(parts)})."
    elif links:
        text = f"Deleted the link {prepared.path}; what it led to ({links[prepared.path]}) stays."
    else:
        text = f"Deleted {prepared.path}."
    data = {"deleted": prepared.path, "files": len(prepared.files), "links": links, "folders": folders}
    return ToolResult(text, prepared.changes, data=data)
