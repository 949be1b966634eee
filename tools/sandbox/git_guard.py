"""Keeps commands inside a sandbox from planting something that git on the host would execute.

A repository's hooks and configuration can name programs, and `commondir` can point git at another folder
that has both. So in every repository found under the workspace these are mounted read-only. What makes a
repository odd (a link where a file or folder belongs) makes its whole git folder read-only.
"""

import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_DEPTH: Final = 6
_ENTRIES: Final = 50_000
_SECONDS: Final = 0.5
_REPOSITORIES: Final = 64
_SKIPPED: Final = frozenset({"node_modules", "__pycache__", ".venv", "venv", ".tox", ".mypy_cache", "target"})
_EXECUTES: Final = re.compile(
    rb"(?i)(?:fsmonitor|hookspath|sshcommand|editor|pager|askpass|gitproxy|external|textconv|command|driver"
    rb"|clean|smudge|process|helper|program|path|worktree|alternaterefscommand|uploadpack|receivepack"
    rb"|tool|cmd|sendpack|update)\s*=|\[\s*(?:alias|include|includeif|filter|merge|diff)\b|.*=\s*\"?!"
)
"""Lines of a git configuration that can make git start a program or read more configuration."""

Owner = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Mount:
    """One path of the workspace, bound onto itself. `identity` is (device, inode) when it was bound: a
    rename over it on the host changes the inode and silently removes the mount."""

    path: Path
    writable: bool
    identity: tuple[int, int]


@dataclass(slots=True)
class GitGuard:
    """The mounts that guard the repositories of one workspace, in the order they must be made.

    Holds a shared lock on each `commondir` it made, so that the last session to leave removes it.
    """

    mounts: list[Mount] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    _made: dict[Path, int] = field(default_factory=dict)
    _contents: dict[Path, bytes] = field(default_factory=dict)

    def lost(self) -> list[Mount]:
        """Mounts whose file was replaced on the host since it was bound."""
        return [mount for mount in self.mounts if _identity(mount.path) != mount.identity]

    def bound_again(self, mount: Mount) -> str | None:
        """Note that a lost mount was made again; returns what the user should know about its content.

        While the mount was gone a command could have written the file, so its new content is compared.
        """
        before, after = self._contents.get(mount.path, b""), _content(mount.path) or b""
        self._contents[mount.path] = after
        identity = _identity(mount.path)
        self.mounts.remove(mount)
        if identity is not None:
            self.mounts.append(Mount(mount.path, mount.writable, identity))
        known = before.splitlines()
        added = [line.strip() for line in after.splitlines() if line not in known]
        programs = [line.decode("utf-8", "replace") for line in added if _EXECUTES.match(line)]
        if not programs:
            return None
        return (
            f"{mount.path} was changed outside the sandbox and now names programs that git runs: "
            f"{'; '.join(programs[:5])}. If you did not set them, remove them before you use git there."
        )

    def release(self) -> None:
        """Remove the `commondir` files that no other session relies on."""
        for path, descriptor in self._made.items():
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:  # another session guards the same repository
                continue
            else:
                path.unlink(missing_ok=True)
            finally:
                os.close(descriptor)
        self._made.clear()

    def _bind(self, path: Path, writable: bool = False) -> None:
        identity = _identity(path)
        if identity is not None:
            self.mounts.append(Mount(path, writable, identity))
            if path.is_file():
                self._contents[path] = _content(path) or b""

    def _repository(self, git: Path, root: Path) -> None:
        """Guard one git folder: writable, but not what can name a program.

        What a link leads to outside `root` is not bound: a repository must not choose what commands see.
        """
        if not _inside(git, root):
            self.notices.append(
                f"{git} leads out of the workspace, so it is not visible in the sandbox and git does not "
                "work there. Open the folder that holds it, or use git yourself."
            )
            return
        hooks, config = git / "hooks", git / "config"
        odd = [path.name for path in (git, hooks, config) if path.is_symlink()]
        if not config.is_file():
            odd.append("config (missing)")
        if not os.access(git, os.W_OK):
            odd.append("not writable for this account")
        common = git / "commondir"
        if _exists(common) and (common.is_symlink() or _content(common) not in (b".", b".\n")):
            odd.append("commondir")
        if odd:
            self.notices.append(
                f"{git} is read-only in the sandbox, because it is unusual: {', '.join(odd)}. "
                "Commands that write to this repository (commit, add) fail there."
            )
            self._bind(Path(os.path.realpath(git)))
            if hooks.is_symlink() and _inside(hooks, root):
                self._bind(Path(os.path.realpath(hooks)))
            return
        owner = _owner(git)
        if not hooks.is_dir():
            hooks.mkdir(exist_ok=True)
            _give(hooks, owner)
        self._hold_common(common, owner)
        self._bind(git, writable=True)
        for path in (hooks, config, common, *self._worktree_parts(git, owner)):
            self._bind(path)

    def _worktree_parts(self, git: Path, owner: Owner) -> list[Path]:
        extra = git / "config.worktree"
        if not _exists(extra) and b"worktreeconfig" in (_content(git / "config") or b"").lower():
            extra.touch(mode=0o644)
            _give(extra, owner)
        return [path for path in (extra, git / "worktrees") if _exists(path) and not path.is_symlink()]

    def _hold_common(self, path: Path, owner: Owner) -> None:
        """A `commondir` that says "here": git works as without it, and it cannot be made to say "there"."""
        created = not _exists(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o644)
        try:
            if created:
                os.write(descriptor, b".\n")
                _give(path, owner)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        except BaseException:
            os.close(descriptor)
            if created:
                path.unlink(missing_ok=True)  # git fails in a repository whose file says nothing
            raise
        self._made[path] = descriptor


def guard(root: Path) -> GitGuard:
    """Guard every repository found under `root`, to a bounded depth and time. Does file work: run it in
    a thread.

    Raises:
        OSError: a guard file could not be made (no space, read-only); nothing is guarded then.
    """
    found = GitGuard()
    try:
        for git in _git_entries(root):
            kind = os.lstat(git).st_mode
            if stat.S_ISREG(kind):
                found._bind(git)  # the pointer of a submodule or a linked worktree
            else:
                found._repository(git, root)
                for module in _modules(git / "modules") if _inside(git, root) else ():
                    found._repository(module, root)
    except BaseException:
        found.release()
        raise
    return found


def _git_entries(root: Path) -> Iterator[Path]:
    """Paths named `.git` under `root`, nearest first."""
    deadline = time.monotonic() + _SECONDS
    folders, seen, count = [(root, 0)], 0, 0
    while folders and seen < _ENTRIES and count < _REPOSITORIES and time.monotonic() < deadline:
        folder, depth = folders.pop(0)
        try:
            with os.scandir(folder) as entries:
                listed = list(entries)
        except OSError:  # unreadable for us: unreadable for commands
            continue
        seen += len(listed)
        for entry in listed:
            if entry.name == ".git":
                count += 1
                yield Path(entry.path)
            elif depth < _DEPTH and entry.name not in _SKIPPED and entry.is_dir(follow_symlinks=False):
                folders.append((Path(entry.path), depth + 1))


def _modules(folder: Path) -> Iterator[Path]:
    """Git folders of submodules: those below `.git/modules` that have a HEAD (names may hold slashes)."""
    waiting = [folder]
    for _ in range(256):
        if not waiting:
            return
        current = waiting.pop(0)
        if not current.is_dir() or current.is_symlink():
            continue
        if (current / "HEAD").exists():
            yield current
            waiting.append(current / "modules")
        else:
            waiting.extend(sorted(current.iterdir())[:64])


def _exists(path: Path) -> bool:
    return os.path.lexists(path)


def _content(path: Path) -> bytes | None:
    try:
        # Somebody may have put a FIFO there: opening it must not wait.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            return file.read(1024 * 1024) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    except OSError:
        return None


def _inside(path: Path, root: Path) -> bool:
    real = Path(os.path.realpath(path))
    return Path(os.path.realpath(root)) in real.parents


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _give(path: Path, owner: Owner) -> None:
    """What a root server makes in a repository belongs to whom the repository does."""
    if os.getuid() == 0:
        os.chown(path, *owner, follow_symlinks=False)


def _owner(path: Path) -> Owner:
    status = os.stat(path)
    return status.st_uid, status.st_gid
