"""The `commondir` files that guards put into repositories, noted where the next server finds them.

A server that is killed cannot remove them. Each is noted in a folder that carries the server's identity in
its name, as those of sandboxes do; the sweep of the next start removes the file before the folder.
"""

import fcntl
import os
import shutil
from pathlib import Path
from typing import Final

CONTENT: Final = b".\n"
_RECORD: Final = "commondir"


def note(folder: Path, path: Path, descriptor: int) -> Path:
    """Note in a folder of this server that it made the file that `descriptor` is; returns the folder."""
    made = os.fstat(descriptor)
    (folder / _RECORD).write_bytes(b"%d %d " % (made.st_dev, made.st_ino) + os.fsencode(path))
    return folder


def forget(folder: Path) -> None:
    """The file was removed, or others rely on it and remove it."""
    shutil.rmtree(folder, ignore_errors=True)


def removed(folder: Path) -> bool:
    """Remove the file that a folder of a killed server notes, unless somebody guards the same repository.

    False: somebody does, so the note is to be kept. Only the very file that was made is removed.
    """
    try:
        device, inode, name = (folder / _RECORD).read_bytes().split(b" ", 2)
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):  # nothing is noted, or the file is gone
        return True
    try:
        found = os.fstat(descriptor)
        if (found.st_dev, found.st_ino) != (int(device), int(inode)) or os.read(descriptor, 8) != CONTENT:
            return True
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(name)
    except BlockingIOError:
        return False
    except OSError:  # a file system that has become read-only: it stays, and git works with it
        return True
    finally:
        os.close(descriptor)
    return True
