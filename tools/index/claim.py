"""The folder of an index: whose it is, when it was last used, and that it is being used now."""

import fcntl
import os
from pathlib import Path
from typing import Final

NOTE: Final = "workspace"
"""The file in it that holds the workspace's path. It is touched with each use and locked meanwhile."""


class Claim:
    """Held by who writes to an index, so that `evict` passes it over.

    Raises:
        OSError: the folder cannot be made or written to.
    """

    def __init__(self, folder: Path, root: Path) -> None:
        while True:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                self._descriptor = os.open(folder / NOTE, flags, 0o600)
            except FileNotFoundError:
                continue  # the folder was deleted in this moment
            fcntl.flock(self._descriptor, fcntl.LOCK_SH)
            if os.fstat(self._descriptor).st_nlink:
                break
            os.close(self._descriptor)  # it was deleted while we waited for it
        os.truncate(self._descriptor, os.pwrite(self._descriptor, os.fsencode(root), 0))
        self.touch()

    def touch(self) -> None:
        """Note that the index is used."""
        os.utime(self._descriptor)

    def release(self) -> None:
        os.close(self._descriptor)
