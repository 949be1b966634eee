"""Indexes that nobody will ask again are deleted: they can be built anew, and disks are finite."""

import fcntl
import logging
import os
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tools.index.claim import NOTE

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Kept:
    """The index of one workspace; `workspace` is None where it is not known (any more)."""

    folder: Path
    workspace: Path | None
    used: float
    size: int


def evict(cache: Path, *, unused_s: float = 30 * 86400, budget: int = 2 << 30) -> int:
    """Delete below a cache folder the indexes of workspaces that are gone, those not used for so long, and
    then the longest unused until the rest take up `budget` bytes at most. Those in use stay whatever they
    are. Blocks; several processes may do it at once.

    Returns the bytes that were freed. What cannot be read or deleted is passed over.
    """
    now = time.time()
    freed = 0
    rest: list[_Kept] = []
    for one in _kept(cache / "index"):
        gone = one.workspace is not None and not one.workspace.is_dir()
        if (gone or now - one.used > unused_s) and _deleted(one.folder):
            freed += one.size
        else:
            rest.append(one)
    total = sum(one.size for one in rest)
    for one in sorted(rest, key=lambda one: one.used):
        if total <= budget:
            break
        if _deleted(one.folder):
            freed += one.size
            total -= one.size
    return freed


def _kept(place: Path) -> list[_Kept]:
    found: list[_Kept] = []
    with suppress(FileNotFoundError), os.scandir(place) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                with suppress(FileNotFoundError):  # another deletes it as well
                    found.append(_measured(Path(entry.path)))
    return found


def _measured(folder: Path) -> _Kept:
    size, used, workspace = 0, folder.stat().st_mtime, None
    with os.scandir(folder) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            size += status.st_blocks * 512
            if entry.name == NOTE:
                used = status.st_mtime
                named = (folder / NOTE).read_bytes()
                workspace = Path(os.fsdecode(named)) if named else None
    return _Kept(folder, workspace, used, size)


def _deleted(folder: Path) -> bool:
    """Delete the folder of an index; False where it is in use or not ours to delete."""
    try:
        descriptor = os.open(folder / NOTE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return True  # another was quicker
    except OSError as error:
        log.warning("the index in %s cannot be deleted: %s", folder, error)
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    except BlockingIOError:
        return False
    except FileNotFoundError:
        return True
    except OSError as error:
        log.warning("the index in %s cannot be deleted: %s", folder, error)
        return False
    finally:
        os.close(descriptor)
    return True
