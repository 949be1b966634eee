"""Bringing many files to the disk without waiting for each in turn."""

import ctypes
import errno
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

MANY: Final = 96
"""Files from which on it is cheaper to sync the whole file system at once."""
SIDE_BY_SIDE: Final = 8
"""Files that are synced at the same time: the file system commits them together."""


def sync(descriptors: Sequence[int]) -> None:
    """Every one of these open files and folders survives a loss of power on return."""
    if len(descriptors) < 2:
        for descriptor in descriptors:
            os.fsync(descriptor)
        return
    with ThreadPoolExecutor(min(SIDE_BY_SIDE, len(descriptors)), "snapshot-sync") as pool:
        list(pool.map(os.fsync, descriptors))


def sync_all(within: int) -> bool:
    """Sync the file system of an open folder in one go; False where the system has no call for that."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "syncfs"):
        return False
    if libc.syncfs(ctypes.c_int(within)) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL):
        return False
    raise OSError(code, os.strerror(code))
