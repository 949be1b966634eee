"""What kind of file system a path lies on, from the kernel's list of mounts."""

import re
from pathlib import Path
from typing import Final

MOUNTS: Final = Path("/proc/self/mounts")

NETWORK: Final = frozenset(
    {
        *("9p", "afs", "beegfs", "ceph", "cifs", "coda", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs"),
        *("nfs", "nfs4", "ocfs2", "pvfs2", "smb3", "smbfs"),
        *("fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
    }
)
"""Types whose shared memory maps are not shared between hosts, or not at all."""


def file_system(path: Path, mounts: str) -> tuple[str, Path] | None:
    """Type and mount point of the file system that holds `path`, given the text of a mounts file.

    None when no line covers it. Later lines hide earlier ones of the same mount point.
    """
    found: tuple[str, Path] | None = None
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[1]))
        deeper = found is None or len(point.parts) >= len(found[1].parts)
        if deeper and path.is_relative_to(point):
            found = fields[2], point
    return found


def network_file_system(path: Path) -> tuple[str, Path] | None:
    """Type and mount point if `path` lies on a network file system; None if not, or if nobody can say."""
    try:
        mounts = MOUNTS.read_text("utf-8", "surrogateescape")
    except OSError:
        return None
    found = file_system(path.resolve(), mounts)
    return found if found is not None and found[0] in NETWORK else None
