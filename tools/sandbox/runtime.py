"""The host's folder of one sandbox: commands, FIFOs and kept outputs. Seen read-only from inside."""

import os
import secrets
import shutil
import stat
import tempfile
from pathlib import Path

from tools.errors import EnvironmentFault
from tools.sandbox import leftovers, planted


def _base(entered: bool = False) -> Path:
    """A folder that only we can list, and only we can enter unless `entered`.

    Raises:
        EnvironmentFault: someone else made it first; using it would let them read or swap commands.
    """
    mode, name = (0o711, f"etude-{os.getuid()}-others") if entered else (0o700, f"etude-{os.getuid()}")
    path = Path(tempfile.gettempdir()).resolve() / name
    path.mkdir(mode=mode, exist_ok=True)
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077 & ~mode:
        raise EnvironmentFault(
            f"{path} exists but is not a private folder of this account. Remove it, or set TMPDIR to a "
            "folder of your own."
        )
    return path


def owned(entered: bool = False) -> Path:
    """A new empty folder whose name tells which process it belongs to; `sweep` removes it once that is gone.

    Raises:
        EnvironmentFault: as `create`, there is no private place for it.
    """
    path = _base(entered) / f"{leftovers.owner()}-{secrets.token_hex(4)}"
    path.mkdir(mode=0o700)
    return path


def create(group: int | None = None) -> Path:
    """A new folder whose name tells which process it belongs to.

    With `group`, members of that group find it under its own path; nobody else does.
    """
    path = owned(entered=group is not None)
    for folder in (path / "out", path / "io"):
        folder.mkdir()
        folder.chmod(0o755)
    if group is not None:
        os.chown(path, -1, group)
    path.chmod(0o755 if group is None else 0o750)
    return path


def sweep() -> int:
    """Remove the folders of processes of this pid namespace that were killed; returns how many."""
    removed = 0
    mine = str(os.stat("/proc/self/ns/pid").st_ino)
    for path in [path for base in (_base(), _base(entered=True)) for path in base.iterdir()]:
        identity, _, _ = path.name.rpartition("-")
        parts = identity.split("-")
        if len(parts) != 3 or not all(map(str.isdigit, parts)) or parts[0] != mine:
            continue
        if leftovers.owner(int(parts[1])) != identity and planted.removed(path):
            shutil.rmtree(path, ignore_errors=True)
            removed += 1
    return removed
