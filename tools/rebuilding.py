"""Renames a folder that the file system cannot rename: in a forked workspace, a folder of the base.

It is made anew beside its target, given its name in one step, and then removed at its old place. In between
both exist; nothing is ever only half there.
"""

import errno
import os
import shutil
import stat as modes
from typing import Final

from tools.confinement import Place

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PIECE: Final = 1 << 20


def can_rebuild(source: Place, target: Place) -> bool:
    """Whether that is what stops a rename: a folder, and both places on one file system."""
    found = os.stat(source.name, dir_fd=source.directory, follow_symlinks=False)
    return modes.S_ISDIR(found.st_mode) and os.fstat(target.directory).st_dev == found.st_dev


def rebuild(source: Place, beside: Place) -> None:
    """Make a folder anew at `beside`, whose name must be free and stays the caller's to rename.

    Raises:
        OSError: it cannot be read or written; nothing is left at `beside`.
    """
    try:
        _folder(source.directory, source.name, beside.directory, beside.name)
    except BaseException:
        shutil.rmtree(beside.name, ignore_errors=True, dir_fd=beside.directory)
        raise


def _folder(source: int, name: str, target: int, new: str) -> None:
    here = os.open(name, _FOLDER, dir_fd=source)
    try:
        os.mkdir(new, 0o700, dir_fd=target)
        there = os.open(new, _FOLDER, dir_fd=target)
        try:
            for entry in sorted(os.listdir(here)):
                _entry(here, entry, there)
            _like(there, os.fstat(here))
        finally:
            os.close(there)
    finally:
        os.close(here)


def _entry(here: int, name: str, there: int) -> None:
    found = os.stat(name, dir_fd=here, follow_symlinks=False)
    kind = modes.S_IFMT(found.st_mode)
    if kind == modes.S_IFDIR:
        _folder(here, name, there, name)
    elif kind == modes.S_IFLNK:
        os.symlink(os.readlink(name, dir_fd=here), name, dir_fd=there)
        if os.geteuid() == 0:
            os.chown(name, found.st_uid, found.st_gid, dir_fd=there, follow_symlinks=False)
    elif kind == modes.S_IFREG:
        _file(here, name, there)
    else:
        raise OSError(errno.EXDEV, "it holds a FIFO, socket or device", name)


def _file(here: int, name: str, there: int) -> None:
    source = os.open(name, _READ, dir_fd=here)
    try:
        target = os.open(name, _WRITE, 0o600, dir_fd=there)
        try:
            while piece := os.read(source, _PIECE):
                view = memoryview(piece)
                while view:
                    view = view[os.write(target, view) :]
            _like(target, os.fstat(source))
        finally:
            os.close(target)
    finally:
        os.close(source)


def _like(descriptor: int, found: os.stat_result) -> None:
    if os.geteuid() == 0:
        os.fchown(descriptor, found.st_uid, found.st_gid)
    os.fchmod(descriptor, modes.S_IMODE(found.st_mode) & ~(modes.S_ISUID | modes.S_ISGID))
    os.utime(descriptor, ns=(found.st_atime_ns, found.st_mtime_ns))
