"""What a file holds now, as the user sees it: an editor's unsaved text wins over the disk."""

import os
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from tools.confinement import locate, workspace_path
from tools.encodings import Binary
from tools.errors import ToolError
from tools.files import MAX_FILE_BYTES, NotFound, list_directory, read_bytes, stat
from tools.result import FileChange
from tools.text import Text, visible
from tools.workspace import Workspace

SUGGESTED: Final = 5
LOOKED_AT: Final = 5_000
"""Entries looked at to find a file of the same name elsewhere."""

_FOLDER: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SKIPPED: Final = frozenset({".git", "node_modules", "__pycache__", ".venv"})


@dataclass(frozen=True, slots=True)
class Content:
    """`path` is canonical. With `unsaved`, `data` is the editor's text in UTF-8 and differs from the disk.

    `mode` and `links` are those of the file on disk, None and 0 where there is none.
    """

    path: str
    data: bytes
    mode: int | None
    links: int
    unsaved: bool = False


def content(workspace: Workspace, path: str, limit: int = MAX_FILE_BYTES) -> Content:
    """The content of a file of the workspace.

    Raises:
        NotFound: with names like it.
        ToolError: it is no regular file, is too large, leads outside or cannot be read.
    """
    root = workspace.root
    entry = stat(root, path)
    name = workspace_path(root, path)
    real = entry.path if entry else canonical(workspace, path)
    buffer = workspace.buffers.get(real) or workspace.buffers.get(name)
    if entry is None:
        if buffer is None:
            raise missing(workspace, path)
        return Content(real, buffer.text.encode("utf-8", "surrogatepass"), None, 0, unsaved=True)
    data, entry = read_bytes(root, path, limit)
    if buffer is not None and not _same(data, buffer.text):
        text = buffer.text.encode("utf-8", "surrogatepass")
        return Content(entry.path, text, entry.mode, entry.links, unsaved=True)
    return Content(entry.path, data, entry.mode, entry.links)


def change_to(current: Content | None, path: str, data: bytes) -> FileChange:
    """A file's change to new bytes; None = there was no file."""
    if current is None:
        return FileChange(path, None, data)
    return FileChange(path, current.data, data, current.mode)


def missing(workspace: Workspace, path: str) -> NotFound:
    """The error for a file that is not there, with the names most like it."""
    name = workspace_path(workspace.root, path)
    names = [other for other in similar_names(workspace, path) if other != name]
    hint = (
        f" Did you mean {', '.join(map(_shown, names))}?"
        if names
        else " Use grep, or read a folder, to find it."
    )
    what = f"There is no file {path!r} in the workspace."
    if (target := _link_target(workspace, name)) is not None:
        what = f"{path} is a symbolic link that leads to nothing: there is no {target}."
    return NotFound(what + hint, suggestions=[name for name in names if _is_text(name)])


def _shown(name: str) -> str:
    """A name as it is suggested: one with bytes that are no text cannot be given back as a path."""
    note = "" if _is_text(name) else " (not a UTF-8 name, so only the shell can open it)"
    return visible(name) + note


def _is_text(name: str) -> bool:
    return not any(0xD800 <= ord(character) < 0xE000 for character in name)


def _link_target(workspace: Workspace, name: str) -> str | None:
    """Where the link of this name leads, for showing; None where there is no link."""
    parent, _, last = name.rpartition("/")
    try:
        with locate(workspace.root, parent or ".") as folder:
            above = os.open(folder.name, _FOLDER, dir_fd=folder.directory)
    except (ToolError, OSError):
        return None
    try:
        return visible(os.readlink(last, dir_fd=above), 200)
    except OSError:
        return None
    finally:
        os.close(above)


def similar_names(workspace: Workspace, path: str) -> list[str]:
    """Paths like one that does not exist: in its folder, then of the same name anywhere (bounded)."""
    parent, _, name = workspace_path(workspace.root, path).rpartition("/")
    try:
        beside, _ = list_directory(workspace.root, parent or ".", LOOKED_AT)
    except ToolError:
        beside = []
    prefix = parent + "/" if parent else ""
    plain = {entry.rstrip("/").lower(): entry for entry in beside}
    found = [prefix + plain[match] for match in get_close_matches(name.lower(), plain, SUGGESTED, 0.6)]
    found += [other for other in _namesakes(workspace, name.lower()) if other not in found]
    return found[:SUGGESTED]


def _namesakes(workspace: Workspace, name: str) -> list[str]:
    found: list[str] = []
    looked = 0
    with locate(workspace.root, ".") as place:
        # `fwalk` goes by descriptors and follows no link, so it cannot be led outside.
        for folder, folders, files, _ in os.fwalk(".", dir_fd=place.directory):
            folders[:] = sorted(entry for entry in folders if entry not in _SKIPPED)
            looked += len(folders) + len(files)
            found += [os.path.join(folder, entry)[2:] for entry in files if entry.lower() == name]
            if looked > LOOKED_AT or len(found) >= SUGGESTED:
                break
    return sorted(found)


def canonical(workspace: Workspace, path: str) -> str:
    """The one name of a path that need not exist: links resolved as far as there are any."""
    try:
        with locate(workspace.root, path) as place:
            return place.path
    except FileNotFoundError:
        return workspace_path(workspace.root, path)


def _same(data: bytes, text: str) -> bool:
    """Whether an editor's text is the file's, line endings aside (editors make them uniform)."""
    try:
        body = Text.decode(data).body
    except Binary:
        return False
    return _plain(body) == _plain(text.removeprefix("\ufeff"))


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")
