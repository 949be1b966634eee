"""Everything that lies below a folder, to compare two states."""

import os
import stat
from pathlib import Path


def tree_of(root: Path) -> dict[bytes, tuple[str, int, bytes]]:
    """Kind, permission bits and content (of a link: its target) by path; `.git` and links are not entered."""
    found: dict[bytes, tuple[str, int, bytes]] = {}
    for folder, folders, files in os.walk(os.fsencode(root)):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            status = os.lstat(path)
            mode, bits = status.st_mode, stat.S_IMODE(status.st_mode)
            relative = os.path.relpath(path, os.fsencode(root))
            if stat.S_ISLNK(mode):
                found[relative] = "link", 0, os.readlink(path)
            elif stat.S_ISDIR(mode):
                found[relative] = "folder", bits, b""
            elif stat.S_ISREG(mode):
                found[relative] = "file", bits, Path(os.fsdecode(path)).read_bytes()
            else:
                found[relative] = "other", bits, b""
        folders[:] = [name for name in folders if name != b".git"]
    return found
