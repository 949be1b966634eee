"""Entries themselves, links not followed: renamed where nothing is overwritten, and looked at before that."""

import ctypes
import errno
import os
import shutil
import stat as modes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.confinement import Place, locate, workspace_path
from tools.contents import content
from tools.errors import EnvironmentFault, InvalidArguments
from tools.files import MAX_FILE_BYTES, explained
from tools.protected import require_unprotected
from tools.rebuilding import can_rebuild, rebuild
from tools.staging import READ, temporary_name
from tools.stale import Stale
from tools.workspace import Workspace, content_hash

MAX_ENTRIES: Final = 1_000
MAX_DEPTH: Final = 100
MAX_BYTES: Final = 32 * 1024 * 1024
"""The most that one call deletes or moves: all of it is kept in the log, so that it can be undone."""

_NOREPLACE: Final = 1
_UNSUPPORTED: Final = frozenset({errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP})


@dataclass(frozen=True, slots=True)
class Held:
    """A file, link, folder or special file below an entry, as it was. `path` is relative to that entry."""

    path: str
    mode: int
    identity: tuple[int, int, int]
    data: bytes | None = None
    target: str | None = None

    @property
    def kind(self) -> int:
        return modes.S_IFMT(self.mode)


@contextmanager
def entry_at(root: Path, path: str) -> Iterator[Place]:
    """The place of `path` itself: links above it are resolved, a link at its end is not.

    Raises:
        ToolError: it is the workspace itself or git's, leads outside, or its folder does not exist.
    """
    name = workspace_path(root, path)
    if name == ".":
        raise InvalidArguments("This is the workspace itself. Name a file or folder in it.")
    parent, _, last = name.rpartition("/")
    with explained(path), locate(root, parent or ".") as above:
        descriptor = os.open(
            above.name,
            getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC,
            dir_fd=above.directory,
        )
    try:
        place = Place(descriptor, last, last if above.path == "." else f"{above.path}/{last}")
        require_unprotected(place.path)
        yield place
    finally:
        os.close(descriptor)


def rename_new(source: Place, target: Place) -> bool:
    """Rename an entry to a name that nobody has: in one step, never over something else. What a forked
    workspace has of its base cannot be renamed and is made anew instead: then it returns False.

    Raises:
        FileExistsError: the name is taken.
        OSError: as rename.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        done = libc.renameat2(
            ctypes.c_int(source.directory),
            ctypes.c_char_p(os.fsencode(source.name)),
            ctypes.c_int(target.directory),
            ctypes.c_char_p(os.fsencode(target.name)),
            ctypes.c_uint(_NOREPLACE),
        )
        if done == 0:
            return True
        code = ctypes.get_errno()
        if code == errno.EXDEV and can_rebuild(source, target):
            beside = Place(target.directory, temporary_name(), target.path)
            rebuild(source, beside)
            try:
                rename_new(beside, target)
            except BaseException:
                shutil.rmtree(beside.name, ignore_errors=True, dir_fd=target.directory)
                raise
            shutil.rmtree(source.name, dir_fd=source.directory)
            return False
        if code not in _UNSUPPORTED or _is_below(source, target):
            raise OSError(code, os.strerror(code), target.path)
    # Where the system has no such call there is a moment between looking and renaming.
    try:
        os.stat(target.name, dir_fd=target.directory, follow_symlinks=False)
    except FileNotFoundError:
        os.rename(source.name, target.name, src_dir_fd=source.directory, dst_dir_fd=target.directory)
        return True
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target.path)


def _is_below(source: Place, target: Place) -> bool:
    return (target.path + "/").startswith(source.path + "/")


def held(place: Place, doing: str) -> list[Held]:
    """Everything at and below an entry, with the content of its files; folders before what they hold.

    `doing` says in refusals what it is for, as in "deleted".

    Raises:
        FileNotFoundError: nothing is there.
        InvalidArguments: it is too much to be kept, or has a repository of its own in it.
        OSError: a part of it may not be read.
    """
    collected: list[Held] = []
    _collect(place.directory, place.name, "", collected, place.path, doing)
    return collected


def _collect(directory: int, name: str, path: str, collected: list[Held], top: str, doing: str) -> None:
    one = _looked_at(directory, name, path, top, doing)
    collected.append(one)
    size = sum(len(other.data) for other in collected if other.data)
    if len(collected) > MAX_ENTRIES or size > MAX_BYTES or path.count("/") > MAX_DEPTH:
        raise InvalidArguments(
            f"{top} holds more than {MAX_ENTRIES} entries, {MAX_BYTES >> 20} MiB or {MAX_DEPTH} levels: too "
            f"much to be {doing} so that it can be undone. Do it in parts, or with the shell."
        )
    if one.kind != modes.S_IFDIR:
        return
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        for below in _names(folder, top, doing):
            _collect(folder, below, f"{path}/{below}".lstrip("/"), collected, top, doing)
    finally:
        os.close(folder)


def _names(folder: int, top: str, doing: str) -> list[str]:
    names: list[str] = []
    with os.scandir(folder) as found:
        for entry in found:
            if entry.name.lower() == ".git":
                raise InvalidArguments(
                    f"{top} has a git repository of its own in it, which is not {doing}. Use the shell."
                )
            names.append(entry.name)
            if len(names) > MAX_ENTRIES:
                break
    return sorted(names)


def _looked_at(directory: int, name: str, path: str, top: str, doing: str) -> Held:
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    is_file = modes.S_ISREG(found.st_mode)
    identity = (found.st_ino, found.st_size * is_file, found.st_mtime_ns * is_file)
    if modes.S_ISLNK(found.st_mode):
        return Held(path, found.st_mode, identity, target=os.readlink(name, dir_fd=directory))
    if not modes.S_ISREG(found.st_mode):
        return Held(path, found.st_mode, identity)
    if found.st_size > MAX_FILE_BYTES:
        raise InvalidArguments(
            f"{'/'.join([top, path]).rstrip('/')} has {found.st_size} bytes, too much to be {doing} so that "
            "it can be undone. Use the shell."
        )
    descriptor = os.open(name, READ, dir_fd=directory)
    try:
        pieces = []
        while piece := os.read(descriptor, 1 << 20):
            pieces.append(piece)
    finally:
        os.close(descriptor)
    return Held(path, found.st_mode, identity, data=b"".join(pieces))


def changes_of(workspace: Workspace, path: str, entries: list[Held], doing: str) -> dict[str, Held]:
    """The files of an entry at canonical `path`, by their own canonical paths.

    Raises:
        Stale: one holds something else than the model saw.
        InvalidArguments: one has unsaved changes in an editor.
    """
    files = {below(path, one.path): one for one in entries if one.data is not None}
    for name, one in files.items():
        assert one.data is not None
        seen = workspace.seen.get(name)
        if seen is not None and seen != content_hash(one.data):
            raise Stale(
                f"{name} has changed since you last saw it; nothing was {doing}. Read it again first.",
                failures=[{"reason": "stale"}],
            )
        if name in workspace.buffers and content(workspace, name).unsaved:
            raise EnvironmentFault(
                f"{name} has unsaved changes in the editor; nothing was {doing}. Ask the user to save it."
            )
    return files


def below(path: str, rest: str) -> str:
    """The path of something below an entry."""
    return f"{path}/{rest}" if rest else path
