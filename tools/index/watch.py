"""What changes in the folders of a workspace, as the kernel tells it, up to the moment of asking."""

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

MAX_WATCHES: Final = 60_000

_MODIFY, _ATTRIB, _MOVED_FROM, _MOVED_TO = 0x2, 0x4, 0x40, 0x80
_CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x100, 0x200, 0x400, 0x800
_OVERFLOW, _IGNORED, _IS_FOLDER = 0x4000, 0x8000, 0x40000000
_ONLY_FOLDER, _NO_FOLLOW, _EXCL_UNLINK = 0x01000000, 0x02000000, 0x04000000
_MASK: Final = (
    _MODIFY | _ATTRIB | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF
    | _ONLY_FOLDER | _NO_FOLLOW | _EXCL_UNLINK
)  # fmt: skip
_EVENT: Final = struct.Struct("iIII")
_READ: Final = 1 << 16
_IGNORE_FILES: Final = frozenset({".gitignore", ".ignore", ".rgignore"})


@dataclass(slots=True)
class Changes:
    """`files` may have changed, come or gone. `everything`: a walk must find out."""

    files: set[str] = field(default_factory=set)
    everything: bool = False


class Unwatchable(Exception):
    """This system cannot watch folders, or not so many."""


class Watch:
    """Watches folders below an open one with inotify. One thread only.

    Raises:
        Unwatchable: on creation or `add`.
    """

    def __init__(self, folder: int) -> None:
        self._folder = folder
        self._folders: dict[int, str] = {}
        self._watched: dict[str, int] = {}
        if sys.platform != "linux":
            raise Unwatchable("there is no inotify on this system")
        self._descriptor = _libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise Unwatchable(os.strerror(ctypes.get_errno()))

    def __contains__(self, folder: str) -> bool:
        return folder in self._watched

    def add(self, folders: Iterable[str]) -> int:
        """Watch folders, "" being the workspace; how many of them are new. What is gone is passed over."""
        added = 0
        for folder in folders:
            if folder in self._watched:
                continue
            if len(self._watched) >= MAX_WATCHES:
                raise Unwatchable(f"there are over {MAX_WATCHES} folders")
            path = f"/proc/self/fd/{self._folder}/{folder}"
            number = _libc().inotify_add_watch(self._descriptor, os.fsencode(path), _MASK)
            if number < 0:
                code = ctypes.get_errno()
                if code in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP):
                    continue
                raise Unwatchable(os.strerror(code))
            self._watched[folder] = number
            self._folders[number] = folder
            added += 1
        return added

    def changes(self) -> Changes:
        """What happened since the last call."""
        found = Changes()
        while True:
            try:
                data = os.read(self._descriptor, _READ)
            except BlockingIOError:
                return found
            at = 0
            while at < len(data):
                number, mask, _, size = _EVENT.unpack_from(data, at)
                at += _EVENT.size
                name = os.fsdecode(data[at : at + size].rstrip(b"\0"))
                at += size
                self._take(found, number, mask, name)

    def _take(self, found: Changes, number: int, mask: int, name: str) -> None:
        if mask & _OVERFLOW:
            found.everything = True
            return
        folder = self._folders.get(number)
        if folder is None:
            return
        if mask & _IGNORED:
            del self._folders[number]
            if self._watched.get(folder) == number:
                del self._watched[folder]
            return
        if mask & (_DELETE_SELF | _MOVE_SELF):
            found.everything = True
            return
        if not name or (mask & _IS_FOLDER and name == ".git"):
            return
        if mask & _IS_FOLDER:
            # A folder that is only touched changes nothing; one that comes, goes or moves does.
            found.everything |= bool(mask & (_CREATE | _MOVED_TO | _MOVED_FROM | _DELETE))
        elif name in _IGNORE_FILES:
            found.everything = True
        else:
            found.files.add(f"{folder}/{name}" if folder else name)

    def close(self) -> None:
        os.close(self._descriptor)


@cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)
