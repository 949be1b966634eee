"""Reading and replacing files of a workspace, never outside it, never by halves."""

import errno
import os
import stat as modes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tools.confinement import Place, locate, workspace_path
from tools.errors import EnvironmentFault, InvalidArguments, ToolError
from tools.staging import READ, Changed, exists, holds, like, named, own, publish, remove, sync, written

MAX_FILE_BYTES: Final = 16 * 1024 * 1024
"""The largest file that is read whole or edited."""

Kind = Literal["file", "directory", "fifo", "socket", "device"]

_NO_SPACE: Final = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file would be larger than the limit of this process",
}


class NotFound(InvalidArguments):
    """There is no such file."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What lies at a path. `path` is canonical (links resolved), `mode` the permission bits."""

    path: str
    kind: Kind
    size: int
    mode: int
    links: int


def stat(root: Path, path: str) -> Entry | None:
    """The entry at `path`, links resolved, or None where nothing is.

    Raises:
        ToolError: the path leads out of the workspace or cannot be looked at.
    """
    try:
        with explained(path), locate(root, path) as place:
            return _entry(place)
    except NotFound:
        return None


@contextmanager
def open_file(root: Path, path: str) -> Iterator[tuple[int, Entry]]:
    """A descriptor to read a regular file, and its entry.

    Raises:
        NotFound: nothing is there.
        InvalidArguments: it is a directory, FIFO, socket or device.
        ToolError: it leads outside or may not be read.
    """
    with explained(path):
        with locate(root, path) as place:
            entry = _entry(place)
            _require_file(entry)
            descriptor = os.open(place.name, READ, dir_fd=place.directory)
        try:
            opened = os.fstat(descriptor)
            entry = _described(entry.path, opened)
            _require_file(entry)
        except BaseException:
            os.close(descriptor)
            raise
    try:
        yield descriptor, entry
    finally:
        os.close(descriptor)


def read_bytes(root: Path, path: str, limit: int = MAX_FILE_BYTES) -> tuple[bytes, Entry]:
    """The whole content of a regular file, with the entry it was read from.

    Raises:
        ToolError: as `open_file`; InvalidArguments also where the file is larger than `limit` bytes.
    """
    with open_file(root, path) as (descriptor, entry), explained(path):
        if entry.size > limit:
            raise too_large(entry.path, entry.size, limit)
        pieces: list[bytes] = []
        total = 0
        while piece := os.read(descriptor, max(entry.size - total, 0) + 4096):
            pieces.append(piece)
            total += len(piece)
            if total > limit:
                raise too_large(entry.path, total, limit)
        return b"".join(pieces), entry


def list_directory(root: Path, path: str, limit: int) -> tuple[list[str], int]:
    """Sorted names in a directory (folders end with "/"), at most `limit`, and how many there are."""
    with explained(path), locate(root, path) as place:
        descriptor = os.open(
            place.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place.directory
        )
        try:
            with os.scandir(descriptor) as found:
                names = [entry.name + "/" * entry.is_dir(follow_symlinks=False) for entry in found]
        finally:
            os.close(descriptor)
    return sorted(names)[:limit], len(names)


def replace(
    root: Path,
    path: str,
    data: bytes,
    mode: int | None = None,
    *,
    expected: bytes | None = None,
    before_commit: Callable[[], None] | None = None,
) -> Entry:
    """Put `data` in the place of an existing file, wholly or not at all; durable on return.

    The file a link leads to is replaced and the link stays; owner, permission bits (or `mode`) and
    extended attributes are kept; other hard links keep the old content. `expected` is the content that
    was read: where the file holds anything else by now, nothing is written. `before_commit` runs last
    before the file changes and may raise.

    Raises:
        NotFound, Changed, InvalidArguments, OutsideWorkspace, EnvironmentFault: the file is unchanged.
    """
    with explained(path, writing=True), locate(root, path) as place:
        entry = _entry(place)
        _require_file(entry)
        old = os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)
        if not old.st_mode & 0o222:
            raise EnvironmentFault(
                f"{entry.path} is read-only (mode {entry.mode:04o}). Make it writable first."
            )
        if not os.access(place.name, os.W_OK, dir_fd=place.directory):
            raise EnvironmentFault(
                f"{entry.path} is read-only for this account (mode {entry.mode:04o}), or its file system is. "
                "Ask the user to make it writable."
            )
        with written(place, data, 0o600) as (descriptor, name):
            like(place, descriptor, old, mode)
            os.fsync(descriptor)
            name = name or named(place, descriptor)
            try:
                if before_commit is not None:
                    before_commit()
                if expected is not None and not holds(place, expected):
                    raise Changed(f"{entry.path} changed while it was being edited. Read it and try again.")
                os.replace(name, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
            except BaseException:
                remove(place, name)
                raise
            sync(place)
            return _described(entry.path, os.fstat(descriptor))


def create(
    root: Path,
    path: str,
    data: bytes,
    mode: int | None = None,
    *,
    before_commit: Callable[[], None] | None = None,
) -> Entry:
    """Make a new file and the folders it needs; durable on return. It belongs to the workspace's owner.

    Raises:
        Changed: something is there already.
        InvalidArguments, OutsideWorkspace, EnvironmentFault: nothing was written.
    """
    made = make_parents(root, path)
    try:
        with explained(path, writing=True), locate(root, path) as place:
            if exists(place):
                raise Changed(f"{place.path} exists already.")
            with written(place, data, 0o666) as (descriptor, name):
                own(root, descriptor)
                if mode is not None:
                    os.fchmod(descriptor, mode)
                os.fsync(descriptor)
                if before_commit is not None:
                    before_commit()
                publish(place, descriptor, name)
                sync(place)
                return _described(place.path, os.fstat(descriptor))
    except BaseException:
        remove_empty(root, made)
        raise


@contextmanager
def explained(path: str, writing: bool = False) -> Iterator[None]:
    """Turn what the system answers into errors that say what to do."""
    try:
        yield
    except OSError as error:
        raise _explanation(path, writing, error) from error


def too_large(path: str, size: int, limit: int) -> InvalidArguments:
    return InvalidArguments(
        f"{path} is {size} bytes; files over {limit // (1024 * 1024)} MiB are neither read whole nor edited. "
        "Work on it with the shell (head, sed, split)."
    )


def _explanation(path: str, writing: bool, error: OSError) -> ToolError:
    code = error.errno or 0
    if code == errno.ENOENT:
        return NotFound(f"There is no file or folder {path!r} in the workspace.")
    if code == errno.ENOTDIR:
        return InvalidArguments(f"A part of {path} is a file, not a folder.")
    if code == errno.ELOOP:
        return InvalidArguments(f"{path} leads through too many symbolic links or a new one.")
    if code == errno.ENAMETOOLONG:
        return InvalidArguments(f"{path} is longer than this file system allows.")
    if code in _NO_SPACE:
        return EnvironmentFault(
            f"{path} was not written: {_NO_SPACE[code]}. The file is unchanged.", errno=code
        )
    verb = "written" if writing else "read"
    return EnvironmentFault(f"{path} cannot be {verb}: {os.strerror(code)}.", errno=code)


def _entry(place: Place) -> Entry:
    return _described(place.path, os.stat(place.name, dir_fd=place.directory, follow_symlinks=False))


def _described(path: str, found: os.stat_result) -> Entry:
    kinds: dict[int, Kind] = {
        modes.S_IFREG: "file",
        modes.S_IFDIR: "directory",
        modes.S_IFIFO: "fifo",
        modes.S_IFSOCK: "socket",
    }
    if modes.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return Entry(
        path=path,
        kind=kinds.get(modes.S_IFMT(found.st_mode), "device"),
        size=found.st_size,
        mode=modes.S_IMODE(found.st_mode),
        links=found.st_nlink,
    )


def _require_file(entry: Entry) -> None:
    if entry.kind == "directory":
        raise InvalidArguments(f"{entry.path} is a directory, not a file.")
    if entry.kind != "file":
        raise InvalidArguments(f"{entry.path} is a {entry.kind}, not a regular file; it is never opened.")


def make_parents(root: Path, path: str) -> list[str]:
    """Make the missing folders above `path`; the canonical paths of those made, outermost first."""
    made: list[str] = []
    parts = workspace_path(root, path).split("/")[:-1]
    try:
        for count in range(1, len(parts) + 1):
            with explained(path, writing=True), locate(root, "/".join(parts[:count])) as place:
                if place.name == ".":
                    continue
                try:
                    os.mkdir(place.name, dir_fd=place.directory)
                except FileExistsError:
                    continue
                made.append(place.path)
                folder = os.open(
                    place.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place.directory
                )
                try:
                    own(root, folder)
                finally:
                    os.close(folder)
                sync(place)
    except BaseException:
        remove_empty(root, made)
        raise
    return made


def remove_empty(root: Path, made: list[str]) -> None:
    """Remove folders that were made for something that is not to be, innermost first."""
    for path in reversed(made):
        try:
            with locate(root, path) as place:
                os.rmdir(place.name, dir_fd=place.directory)
        except (ToolError, OSError):
            return  # somebody else has put something there: it stays, and so do the folders above
