"""Reading and replacing files of a workspace, never outside it, never by halves."""

import errno
import os
import secrets
import stat as modes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tools.confinement import Place, locate, workspace_path
from tools.errors import EnvironmentFault, InvalidArguments, ToolError

MAX_FILE_BYTES: Final = 16 * 1024 * 1024
"""The largest file that is read whole or edited."""

Kind = Literal["file", "directory", "fifo", "socket", "device"]

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_TEMPORARY: Final = getattr(os, "O_TMPFILE", 0)
_NO_SPACE: Final = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file would be larger than the limit of this process",
}


class NotFound(InvalidArguments):
    """There is no such file."""


class Changed(ToolError):
    """The file is no longer the one that was read; nothing was written."""


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
            descriptor = os.open(place.name, _READ, dir_fd=place.directory)
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
        with _written(place, data, 0o600) as (descriptor, name):
            _like(place, descriptor, old, mode)
            os.fsync(descriptor)
            name = name or _named(place, descriptor)
            try:
                if before_commit is not None:
                    before_commit()
                if expected is not None and not _holds(place, expected):
                    raise Changed(f"{entry.path} changed while it was being edited. Read it and try again.")
                os.replace(name, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
            except BaseException:
                _remove(place, name)
                raise
            _sync(place)
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
    made = _make_parents(root, path)
    try:
        with explained(path, writing=True), locate(root, path) as place:
            if _exists(place):
                raise Changed(f"{place.path} exists already.")
            with _written(place, data, 0o666) as (descriptor, name):
                _own(root, descriptor)
                if mode is not None:
                    os.fchmod(descriptor, mode)
                os.fsync(descriptor)
                if before_commit is not None:
                    before_commit()
                _publish(place, descriptor, name)
                _sync(place)
                return _described(place.path, os.fstat(descriptor))
    except BaseException:
        _remove_empty(root, made)
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


def _exists(place: Place) -> bool:
    try:
        os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _holds(place: Place, expected: bytes) -> bool:
    descriptor = os.open(place.name, _READ, dir_fd=place.directory)
    try:
        seen = memoryview(expected)
        while piece := os.read(descriptor, 1 << 20):
            if piece != seen[: len(piece)]:
                return False
            seen = seen[len(piece) :]
        return not seen
    finally:
        os.close(descriptor)


def _require_file(entry: Entry) -> None:
    if entry.kind == "directory":
        raise InvalidArguments(f"{entry.path} is a directory, not a file.")
    if entry.kind != "file":
        raise InvalidArguments(f"{entry.path} is a {entry.kind}, not a regular file; it is never opened.")


@contextmanager
def _written(place: Place, data: bytes, mode: int) -> Iterator[tuple[int, str | None]]:
    """A file holding `data` in the place's directory: without a name where the system can, else named."""
    flags = os.O_WRONLY | os.O_CLOEXEC
    name = None
    try:
        if not _TEMPORARY or not os.path.exists("/proc/self/fd"):
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        descriptor = os.open(".", flags | _TEMPORARY, mode, dir_fd=place.directory)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT):
            raise
        name = _temporary_name()
        descriptor = os.open(
            name, flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode, dir_fd=place.directory
        )
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        yield descriptor, name
    except BaseException:
        if name is not None:
            _remove(place, name)
        raise
    finally:
        os.close(descriptor)


def _temporary_name() -> str:
    return f".etude-{secrets.token_hex(8)}.tmp"


def _named(place: Place, descriptor: int) -> str:
    name = _temporary_name()
    os.link(f"/proc/self/fd/{descriptor}", name, dst_dir_fd=place.directory)
    return name


def _publish(place: Place, descriptor: int, name: str | None) -> None:
    """Give a new file its name unless somebody has taken it."""
    try:
        if name is None:
            os.link(f"/proc/self/fd/{descriptor}", place.name, dst_dir_fd=place.directory)
        else:
            os.link(name, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
            _remove(place, name)
    except FileExistsError as error:
        raise Changed(f"{place.path} was made by somebody else meanwhile.") from error
    except OSError as error:
        # File systems without hard links (FAT, some network shares) can only rename.
        if name is None or error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        if _exists(place):
            raise Changed(f"{place.path} was made by somebody else meanwhile.") from error
        os.rename(name, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)


def _remove(place: Place, name: str) -> None:
    try:
        os.unlink(name, dir_fd=place.directory)
    except FileNotFoundError:
        return


def _like(place: Place, descriptor: int, old: os.stat_result, mode: int | None) -> None:
    """Owner, bits and attributes of the old file. Without the right to give it away it becomes ours."""
    made = os.fstat(descriptor)
    bits = modes.S_IMODE(old.st_mode) if mode is None else mode
    for owner, group in ((old.st_uid, old.st_gid), (-1, old.st_gid)):
        if (made.st_uid, made.st_gid) == (old.st_uid, old.st_gid):
            break
        try:
            os.fchown(descriptor, owner, group)
            break
        except PermissionError:
            # A file that changes hands must not keep the power to run as its owner.
            bits &= ~(modes.S_ISUID | modes.S_ISGID)
    if hasattr(os, "listxattr"):
        _copy_attributes(place, descriptor)
    os.fchmod(descriptor, bits)


def _copy_attributes(place: Place, descriptor: int) -> None:
    try:
        source = os.open(place.name, _READ, dir_fd=place.directory)
    except PermissionError:
        return
    try:
        for attribute in os.listxattr(source):
            os.setxattr(descriptor, attribute, os.getxattr(source, attribute))
    except OSError as error:
        # Attributes are kept where the file system and our rights allow it; they never stop an edit.
        if error.errno not in (errno.EOPNOTSUPP, errno.EPERM, errno.EACCES, errno.ENODATA):
            raise
    finally:
        os.close(source)


def _own(root: Path, descriptor: int) -> None:
    """A root server leaves new files to the workspace's owner."""
    if os.geteuid() == 0:
        home = os.stat(root)
        os.fchown(descriptor, home.st_uid, home.st_gid)


def _sync(place: Place) -> None:
    try:
        directory = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place.directory)
    except PermissionError:
        return  # a folder that may be written but not listed cannot be synced
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _make_parents(root: Path, path: str) -> list[str]:
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
                    _own(root, folder)
                finally:
                    os.close(folder)
                _sync(place)
    except BaseException:
        _remove_empty(root, made)
        raise
    return made


def _remove_empty(root: Path, made: list[str]) -> None:
    for path in reversed(made):
        try:
            with locate(root, path) as place:
                os.rmdir(place.name, dir_fd=place.directory)
        except OSError:
            return  # somebody else has put something there: it stays, and so do the folders above
