"""New content beside its place: written whole and synced, and only then given the name of a file.

Everything acts on an open directory (`tools.confinement.Place`), so nothing swapped in meanwhile is followed.
"""

import errno
import os
import secrets
import stat as modes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tools.confinement import Place
from tools.errors import ToolError

READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
TEMPORARY: Final = getattr(os, "O_TMPFILE", 0)


class Changed(ToolError):
    """The file is no longer the one that was read; nothing was written."""


@contextmanager
def written(place: Place, data: bytes, mode: int) -> Iterator[tuple[int, str | None]]:
    """A file holding `data` in the place's directory: without a name where the system can, else named."""
    flags = os.O_WRONLY | os.O_CLOEXEC
    name = None
    try:
        if not TEMPORARY or not os.path.exists("/proc/self/fd"):
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        descriptor = os.open(".", flags | TEMPORARY, mode, dir_fd=place.directory)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT):
            raise
        name = temporary_name()
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
            remove(place, name)
        raise
    finally:
        os.close(descriptor)


def temporary_name() -> str:
    return f".etude-{secrets.token_hex(8)}.tmp"


def named(place: Place, descriptor: int, name: str | None = None) -> str:
    """Give a file without a name one that nobody has."""
    name = name or temporary_name()
    os.link(f"/proc/self/fd/{descriptor}", name, dst_dir_fd=place.directory)
    return name


def publish(place: Place, descriptor: int, name: str | None) -> None:
    """Give a new file its name unless somebody has taken it."""
    try:
        if name is None:
            os.link(f"/proc/self/fd/{descriptor}", place.name, dst_dir_fd=place.directory)
        else:
            os.link(name, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
            remove(place, name)
    except FileExistsError as error:
        raise Changed(f"{place.path} was made by somebody else meanwhile.") from error
    except OSError as error:
        # File systems without hard links (FAT, some network shares) can only rename.
        if name is None or error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        if exists(place):
            raise Changed(f"{place.path} was made by somebody else meanwhile.") from error
        os.rename(name, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)


def remove(place: Place, name: str) -> None:
    try:
        os.unlink(name, dir_fd=place.directory)
    except FileNotFoundError:
        return


def like(place: Place, descriptor: int, old: os.stat_result, mode: int | None) -> None:
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
        source = os.open(place.name, READ, dir_fd=place.directory)
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


def own(root: Path, descriptor: int) -> None:
    """A root server leaves new files to the workspace's owner."""
    if os.geteuid() == 0:
        home = os.stat(root)
        os.fchown(descriptor, home.st_uid, home.st_gid)


def sync(place: Place) -> None:
    try:
        directory = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place.directory)
    except PermissionError:
        return  # a folder that may be written but not listed cannot be synced
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def exists(place: Place) -> bool:
    try:
        os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def holds(place: Place, expected: bytes) -> bool:
    descriptor = os.open(place.name, READ, dir_fd=place.directory)
    try:
        seen = memoryview(expected)
        while piece := os.read(descriptor, 1 << 20):
            if piece != seen[: len(piece)]:
                return False
            seen = seen[len(piece) :]
        return not seen
    finally:
        os.close(descriptor)
