"""What the workspace's own repository says of itself: HEAD, its commit, its branches. Only ever read."""

import os
import stat
from typing import Any, Final

from tools.snapshots.generated import small_file

MAX_BRANCHES: Final = 64
PACKED_LIMIT: Final = 1 << 20
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def git_state(root: int) -> dict[str, Any] | None:
    """`{head, commit, branches}` of the repository whose `.git` lies in an open folder, or None.

    No git is run, no link followed. A worktree's `.git` is a file that leads elsewhere: `{worktree: true}`.
    `commit` is None before the first one, or where a reference is longer than what is read.
    """
    try:
        if stat.S_ISREG(os.stat(".git", dir_fd=root, follow_symlinks=False).st_mode):
            return {"worktree": True}
        git = os.open(".git", _FOLDER, dir_fd=root)
    except OSError:
        return None
    try:
        head = _line(small_file(git, "HEAD", 4096))
        if head is None:
            return None
        packed = _packed(small_file(git, "packed-refs", PACKED_LIMIT) or b"")
        reference = head.removeprefix("ref: ")
        commit = head if reference == head else _loose(git, reference) or packed.get(reference)
        names = _branches(git) | {name for name in packed if name.startswith("refs/heads/")}
        branches = {
            name.removeprefix("refs/heads/"): _loose(git, name) or packed.get(name)
            for name in sorted(names)[:MAX_BRANCHES]
        }
        return {"head": head, "commit": commit, "branches": branches}
    finally:
        os.close(git)


def _line(content: bytes | None) -> str | None:
    return None if content is None else content.decode("utf-8", "replace").strip()


def _loose(git: int, reference: str) -> str | None:
    """The commit that a reference's own file names; folders are entered without following links."""
    *folders, name = reference.split("/")
    if ".." in folders or not name:
        return None
    opened = [git]
    try:
        for folder in folders:
            opened.append(os.open(folder, _FOLDER, dir_fd=opened[-1]))
        return _line(small_file(opened[-1], name, 256))
    except (OSError, ValueError):
        return None
    finally:
        for descriptor in opened[1:]:
            os.close(descriptor)


def _branches(git: int) -> set[str]:
    """Branches with a file of their own, those without a slash in their name."""
    opened = [git]
    try:
        for folder in ("refs", "heads"):
            opened.append(os.open(folder, _FOLDER, dir_fd=opened[-1]))
        with os.scandir(opened[-1]) as found:
            names = [entry.name for _, entry in zip(range(MAX_BRANCHES), found, strict=False)]
        return {f"refs/heads/{name.encode('utf-8', 'replace').decode()}" for name in names}
    except OSError:
        return set()
    finally:
        for descriptor in opened[1:]:
            os.close(descriptor)


def _packed(content: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in content.decode("utf-8", "replace").splitlines():
        commit, space, name = line.partition(" ")
        if space and not line.startswith(("#", "^")):
            found[name] = commit
    return found
