"""Files of a workspace by their path in bytes, reached without following any link."""

import os
import stat
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final

from tools.snapshots.manifest import Entry
from tools.snapshots.objects import DIGEST, PIECE, Objects
from tools.snapshots.taking import unreadable

MAX_OPEN: Final = 48
"""Folders that stay open between two operations."""

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Beneath:
    """An open workspace. Close it with `with`. All operations raise `OSError`."""

    def __init__(self, root: Path) -> None:
        self.path = root
        self._folders: dict[bytes, int] = {}

    def __enter__(self) -> "Beneath":
        try:
            self.root = os.open(self.path, _FOLDER)
        except OSError as error:
            raise unreadable(self.path, error) from error
        found = os.fstat(self.root)
        self.owner = found.st_uid, found.st_gid
        return self

    def __exit__(self, *_: object) -> None:
        self.forget()
        os.close(self.root)

    def forget(self) -> None:
        """Close the folders that stayed open, so that their names may change."""
        for descriptor in self._folders.values():
            os.close(descriptor)
        self._folders.clear()

    def parent(self, path: bytes) -> tuple[int, bytes]:
        """The open folder a path lies in, and its name there."""
        above, _, name = path.rpartition(b"/")
        return self.folder(above), name

    def folder(self, path: bytes) -> int:
        """An open folder; it is not to be closed."""
        if not path:
            return self.root
        if (known := self._folders.get(path)) is not None:
            return known
        above, name = self.parent(path)
        if len(self._folders) >= MAX_OPEN:
            above = os.dup(above)
            self.forget()
            try:
                descriptor = os.open(name, _FOLDER, dir_fd=above)
            finally:
                os.close(above)
        else:
            descriptor = os.open(name, _FOLDER, dir_fd=above)
        self._folders[path] = descriptor
        return descriptor

    def state(self, path: bytes) -> Entry | None:
        """What lies at a path now, its content hashed; None where nothing is."""
        try:
            directory, name = self.parent(path)
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        mode = stat.S_IMODE(found.st_mode)
        if stat.S_ISDIR(found.st_mode):
            return Entry(path, "directory", mode)
        if stat.S_ISLNK(found.st_mode):
            target = os.readlink(name, dir_fd=directory)
            digest = blake2b(target, digest_size=DIGEST)
            return Entry(path, "link", 0o777, len(target), digest.hexdigest())
        if stat.S_ISFIFO(found.st_mode):
            return Entry(path, "fifo", mode)
        if not stat.S_ISREG(found.st_mode):
            return Entry(path, "left_out", mode, 0, "special")
        descriptor = os.open(name, _FILE, dir_fd=directory)
        try:
            digest, size = blake2b(digest_size=DIGEST), 0
            while piece := os.read(descriptor, PIECE):
                digest.update(piece)
                size += len(piece)
            return Entry(path, "file", mode, size, digest.hexdigest())
        finally:
            os.close(descriptor)

    def read(self, path: bytes) -> bytes:
        """The content of a regular file."""
        directory, name = self.parent(path)
        with open(os.open(name, _FILE, dir_fd=directory), "rb") as file:
            return file.read()

    def prepare(self, objects: Objects, entry: Entry, temporary: bytes) -> int | None:
        """Make a file, link or FIFO beside where it will lie; the open file, where it is one.

        It gets the owner of what lies there now, else that of the workspace.
        """
        directory, name = self.parent(entry.path)
        owner = self._owner(directory, name)
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=directory)
        if entry.type == "link":
            os.symlink(objects.read(entry.name), temporary, dir_fd=directory)
            self._give(directory, temporary, owner)
            return None
        if entry.type == "fifo":
            os.mkfifo(temporary, 0o600, dir_fd=directory)
            self._give(directory, temporary, owner)
            os.chmod(temporary, entry.mode, dir_fd=directory)
            return None
        descriptor = os.open(temporary, _NEW, 0o600, dir_fd=directory)
        try:
            objects.copy_to(entry.name, descriptor)
            mode = entry.mode
            if os.geteuid() == 0:
                os.fchown(descriptor, *owner)
                if owner[0] == 0:
                    # Who owned it was not recorded: it must not gain the power to run as root.
                    mode &= ~(stat.S_ISUID | stat.S_ISGID)
            os.fchmod(descriptor, mode)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def make_folder(self, path: bytes) -> None:
        directory, name = self.parent(path)
        os.mkdir(name, 0o700, dir_fd=directory)
        self._give(directory, name, self.owner)

    def set_mode(self, path: bytes, mode: int) -> None:
        """Permission bits of a file or folder."""
        directory, name = self.parent(path)
        descriptor = os.open(name, _FILE, dir_fd=directory)
        try:
            os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)

    def rename(self, path: bytes, temporary: bytes) -> None:
        directory, name = self.parent(path)
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)

    def remove(self, path: bytes) -> None:
        directory, name = self.parent(path)
        os.unlink(name, dir_fd=directory)

    def remove_folder(self, path: bytes) -> None:
        directory, name = self.parent(path)
        if (opened := self._folders.pop(path, None)) is not None:
            os.close(opened)
        os.rmdir(name, dir_fd=directory)

    def _owner(self, directory: int, name: bytes) -> tuple[int, int]:
        try:
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return self.owner
        return found.st_uid, found.st_gid

    def _give(self, directory: int, name: bytes, owner: tuple[int, int]) -> None:
        if os.geteuid() == 0:
            os.chown(name, *owner, dir_fd=directory, follow_symlinks=False)
