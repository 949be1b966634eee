"""Keeps commands inside a sandbox from planting something that git on the host would execute.

A repository's hooks and configuration can name programs, and `commondir` can point git at another folder
that has both. So in every repository found under the workspace these are mounted read-only. What makes a
repository odd (a link where a file or folder belongs) makes its whole git folder read-only.
"""

import fcntl
import os
import stat
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools.confinement import locate
from tools.errors import ToolError
from tools.sandbox import planted, runtime
from tools.sandbox.git_programs import in_configuration, settings

_DEPTH: Final = 6
_ENTRIES: Final = 50_000
_SECONDS: Final = 0.5
_REPOSITORIES: Final = 64
_WORKTREES: Final = 32
_SKIPPED: Final = frozenset({"node_modules", "__pycache__", ".venv", "venv", ".tox", ".mypy_cache", "target"})
Owner = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Mount:
    """One path of the workspace, bound onto itself. `identity` is (device, inode) when it was bound: a
    rename over it on the host changes the inode and silently removes the mount."""

    path: Path
    writable: bool
    identity: tuple[int, int]
    may_vanish: bool = False
    """What belongs to a linked worktree, which git removes and makes anew."""


@dataclass(slots=True)
class GitGuard:
    """The mounts that guard the repositories of one workspace, in the order they must be made.

    Holds a shared lock on each `commondir` it made, so that the last session to leave removes it.
    """

    mounts: list[Mount] = field(default_factory=list)
    outside: list[Path] = field(default_factory=list)
    """Folders outside the workspace that are shown for git's sake."""
    around: Path | None = None
    """The one of them that holds the workspace; read-only but for the workspace."""
    notices: list[str] = field(default_factory=list)
    _made: dict[Path, int] = field(default_factory=dict)
    _records: list[Path] = field(default_factory=list)
    """Who made them, for the next server if this one is killed."""
    _contents: dict[Path, bytes] = field(default_factory=dict)

    def lost(self) -> list[Mount]:
        """Mounts whose file was replaced on the host since it was bound. Those of a linked worktree that was
        removed are forgotten: what is made in its place is looked at like any new repository."""
        lost = [mount for mount in self.mounts if _identity(mount.path) != mount.identity]
        gone = [one for one in lost if one.may_vanish and (one.writable or not _exists(one.path))]
        for mount in gone:
            self.mounts.remove(mount)
        return [mount for mount in lost if mount not in gone]

    def bound_again(self, mount: Mount) -> str | None:
        """Note that a lost mount was made again; returns what the user should know about its content.

        While the mount was gone a command could have written the file, so its new content is compared.
        """
        before, after = self._contents.get(mount.path, b""), _content(mount.path) or b""
        self._contents[mount.path] = after
        identity = _identity(mount.path)
        self.mounts.remove(mount)
        if identity is not None:
            self.mounts.append(Mount(mount.path, mount.writable, identity, mount.may_vanish))
        known = in_configuration(before)
        programs = [setting for setting in in_configuration(after) if setting not in known]
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
        for record in self._records:
            planted.forget(record)
        self._records.clear()

    def _bind(self, path: Path, writable: bool = False, may_vanish: bool = False) -> None:
        identity = _identity(path)
        if identity is not None:
            self.mounts.append(Mount(path, writable, identity, may_vanish))
            if path.is_file():
                self._contents[path] = _content(path) or b""

    def _repository(self, git: Path, root: Path) -> None:
        """Guard one git folder: writable, but not what can name a program.

        What a link leads to outside `root` is not bound: a repository must not choose what commands see.
        """
        real = _beneath(git, root)
        if real is None:
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
            self._bind(real)
            if hooks.is_symlink() and (led := _beneath(hooks, root)) is not None:
                self._bind(led)
            return
        owner = _owner(git)
        if not hooks.is_dir():
            hooks.mkdir(exist_ok=True)
            _give(hooks, owner)
        self._hold_common(common, owner)
        self._bind(git, writable=True)
        for path in (hooks, config, common, *self._worktree_configuration(git, owner)):
            self._bind(path)
        self._worktrees(git)

    def _worktree_configuration(self, git: Path, owner: Owner) -> list[Path]:
        extra = git / "config.worktree"
        if not _exists(extra) and b"worktreeconfig" in (_content(git / "config") or b"").lower():
            extra.touch(mode=0o644)
            _give(extra, owner)
        return [extra] if _exists(extra) and not extra.is_symlink() else []

    def _worktrees(self, git: Path) -> None:
        """The git folders of linked worktrees: writable, but not where they say the repository is."""
        folder = git / "worktrees"
        if not folder.is_dir() or folder.is_symlink():
            return
        each = sorted(folder.iterdir())
        if len(each) > _WORKTREES or any(path.is_symlink() or not path.is_dir() for path in each):
            self._bind(folder)
            return
        self._bind(folder, writable=True, may_vanish=True)
        for path in each:
            self._bind(path, writable=True, may_vanish=True)
            for name in ("commondir", "gitdir", "config.worktree"):
                if _exists(path / name) and not (path / name).is_symlink():
                    self._bind(path / name, may_vanish=True)

    def _around(self, root: Path, homes: Collection[Path]) -> None:
        """Guard the repository that `root` is a part of: a folder in it, a linked worktree, a submodule.

        All of it lies outside the workspace and nothing in the workspace can have made it, if it says itself
        that the workspace belongs to it.
        """
        top = _top(root, homes)
        if top is None:
            return
        git = top / ".git"
        if stat.S_ISREG(os.lstat(git).st_mode):
            found = _pointed(git)
            if found is None or root in found.parents or found == root:
                return
            if not _claims(found, git) or any(found in (home, *home.parents) for home in homes):
                self.notices.append(
                    f"{git} leads to {found}, which does not say that it belongs to this workspace; it is "
                    "not visible in the sandbox and git does not work there."
                )
                return
            git = found.parent.parent if found.parent.name == "worktrees" else found
        if os.lstat(git).st_uid != os.lstat(root).st_uid:
            self.notices.append(f"{git} belongs to another user, so it is not visible in the sandbox.")
            return
        if top != root:
            self.outside.append(top)
            self.around = top
            self.notices.append(
                f"The workspace is a part of the repository {top}: what lies beside it is visible to "
                "commands, read-only."
            )
        if top not in git.parents:
            self.outside.append(git)
        self._repository(git, git.parent)
        for module in _modules(git / "modules"):
            self._repository(module, git.parent)

    def _hold_common(self, path: Path, owner: Owner) -> None:
        """A `commondir` that says "here": git works as without it, and it cannot be made to say "there"."""
        created = not _exists(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o644)
        try:
            if created:
                os.write(descriptor, planted.CONTENT)
                self._records.append(planted.note(runtime.owned(), path, descriptor))
                _give(path, owner)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        except BaseException:
            os.close(descriptor)
            if created:
                path.unlink(missing_ok=True)  # git fails in a repository whose file says nothing
            raise
        self._made[path] = descriptor


def guard(root: Path, homes: Collection[Path] | None = None) -> GitGuard:
    """Guard every repository found under `root`, to a bounded depth and time, and with `homes` (which stay
    hidden) the one around it. Does file work: run it in a thread.

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
                for module in _modules(git / "modules") if _beneath(git, root) else ():
                    found._repository(module, root)
        if homes is not None:
            found._around(root, homes)
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


def _beneath(path: Path, root: Path) -> Path | None:
    """The path with its links resolved, if that lies below `root`. (`root` may be no path that the system
    could resolve: it may lead into the mounts of another process.)"""
    try:
        with locate(root, str(path)) as place:
            return root / place.path if place.path != "." and _exists(root / place.path) else None
    except (ToolError, OSError):
        return None


def _top(root: Path, homes: Collection[Path]) -> Path | None:
    """The nearest folder from `root` upwards that has a `.git`, short of homes and other file systems."""
    device = os.lstat(root).st_dev
    for folder in (root, *root.parents):
        if folder in homes or any(folder in home.parents for home in homes) or folder == Path(folder.anchor):
            return None
        if os.lstat(folder).st_dev != device:
            return None
        try:
            kind = os.lstat(folder / ".git").st_mode
        except OSError:
            continue
        if stat.S_ISDIR(kind):
            return folder if folder != root else None  # the workspace's own is found below it
        return folder if stat.S_ISREG(kind) else None
    return None


def _pointed(git: Path) -> Path | None:
    """Where a `.git` file says the repository is, if that is a plain folder."""
    text = (_content(git) or b"").strip()
    if not text.startswith(b"gitdir:") or b"\0" in text:
        return None
    found = Path(os.path.normpath(git.parent / os.fsdecode(text.removeprefix(b"gitdir:").strip())))
    return found if found.is_dir() and os.path.realpath(found) == str(found) else None


def _claims(repository: Path, pointer: Path) -> bool:
    """Whether a git folder says by itself that the worktree with this `.git` file is its own."""
    if repository.parent.name == "worktrees":
        back = (_content(repository / "gitdir") or b"").strip()
        main = repository.parent.parent
        common = os.fsdecode((_content(repository / "commondir") or b"").strip())
        place = os.path.normpath(repository / os.fsdecode(back)) if back else ""
        return place == str(pointer) and os.path.normpath(repository / common) == str(main)
    for name, value in settings(_content(repository / "config") or b""):
        if name == "core.worktree":
            return os.path.normpath(repository / value) == str(pointer.parent)
    return False


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
