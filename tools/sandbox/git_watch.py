"""Finds what commands plant in repositories that no mount guards, because they were made meanwhile or lie too
deep: settings, hooks and pointers through which git on the host would run a program.

Nothing is forbidden here; it is told. The kernel says which folders got new entries (inotify), so a look
after a command costs next to nothing when there were none.
"""

import ctypes
import errno
import os
import stat
import struct
import threading
import time
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from tools.confinement import locate
from tools.errors import ToolError
from tools.files import read_bytes
from tools.sandbox.git_programs import in_attributes, in_configuration

_CREATED, _MOVED_TO, _ONLY_FOLDERS, _NO_LINKS = 0x100, 0x80, 0x01000000, 0x02000000
_OVERFLOW, _IGNORED, _IS_FOLDER = 0x4000, 0x8000, 0x40000000
_EVENT: Final = struct.Struct("iIII")
_READ_BYTES: Final = 1 << 18
_FOLDERS: Final = 30_000
_REPOSITORIES: Final = 256
_PARTS: Final = 256
_HOOKS: Final = 64
_LIMIT: Final = 1 << 20
_TOLD: Final = 10_000
_SHOWN: Final = 6
_CLOCK_NS: Final = 20_000_000
"""File times lag behind the clock by up to a tick of the kernel."""
_BARE: Final = frozenset({"HEAD", "objects", "refs", "commondir"})

_libc = ctypes.CDLL(None, use_errno=True)

Signature = tuple[int, int, int]


class GitWatch:
    """Watches one workspace. Every method blocks; `begin` once, then `look` after commands.

    `guarded` are paths that commands cannot write: what changes there was changed on the host. With `only`
    the root is a git folder itself, and nothing is looked for below it but its own parts.
    """

    def __init__(self, root: Path, guarded: Collection[Path] = (), only: bool = False) -> None:
        self._root = root
        self._only = only
        self._guarded = frozenset(guarded)
        self._since = time.time_ns() - _CLOCK_NS
        self._lock = threading.Lock()
        self._folders: dict[int, str] = {}
        self._repositories: dict[str, dict[str, Signature]] = {}
        self._told: set[tuple[str, str]] = set()
        self._too_many = False
        self._said_so = False
        self._stopped = False
        try:
            self._base = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:  # gone meanwhile: whatever is done there next says so
            self._base = -1
        self._inotify = -1 if only else _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)

    def begin(self) -> None:
        """Look through the whole tree once (tens of milliseconds for a few thousand folders)."""
        with self._lock:
            if self._base >= 0 and self._only:
                self._note(".")
            elif self._base >= 0:
                self._walk(".")

    def look(self) -> list[str]:
        """What was planted since the last look, one notice a repository."""
        with self._lock:
            if self._base < 0:
                return []
            self._follow()
            notices: list[str] = []
            done: set[str] = set()
            while left := self._repositories.keys() - done:  # one may lead to another
                done |= left
                for git in sorted(left):
                    found = self._changed(git)
                    if found:
                        notices.append(_notice(self._root, git, found))
            if self._too_many and not self._said_so:
                self._said_so = True
                notices.append(
                    f"The workspace has more than {_FOLDERS} folders: git repositories that commands make in "
                    "the rest of them are not looked at."
                )
            return notices

    def close(self) -> None:
        self._stopped = True  # a walk that goes on lets go soon
        with self._lock:
            for descriptor in (self._base, self._inotify):
                if descriptor >= 0:
                    os.close(descriptor)
            self._base = self._inotify = -1

    # -- where repositories are ------------------------------------------------------------------------

    def _follow(self) -> None:
        """Take in what the kernel reports."""
        if self._only:
            return
        if self._inotify < 0:  # no instance was left: look everywhere
            self._walk(".")
            return
        fresh: dict[str, None] = {}
        while data := self._events():
            at = 0
            while at < len(data):
                watch, mask, _, length = _EVENT.unpack_from(data, at)
                name = os.fsdecode(data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0"))
                at += _EVENT.size + length
                if mask & _OVERFLOW:
                    fresh = {".": None}
                    self._folders.clear()
                    continue
                folder = self._folders.get(watch)
                if mask & _IGNORED:
                    self._folders.pop(watch, None)
                elif folder is not None:
                    if name == ".git":
                        self._note(_joined(folder, name))
                    elif mask & _IS_FOLDER:
                        fresh[_joined(folder, name)] = None
                    if name in _BARE:
                        fresh[folder] = None
        for folder in fresh:
            self._walk(folder)

    def _events(self) -> bytes:
        try:
            return os.read(self._inotify, _READ_BYTES)
        except BlockingIOError:
            return b""

    def _walk(self, start: str) -> None:
        waiting = [start]
        while waiting and not self._stopped:
            folder = waiting.pop()
            if len(self._folders) >= _FOLDERS:
                self._too_many = True
                return
            known = self._watch(folder)
            try:
                place = os.open(
                    folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._base
                )
            except OSError:  # gone again, or unreadable for us
                continue
            try:
                with os.scandir(place) as entries:
                    names = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
            except OSError:
                continue
            finally:
                os.close(place)
            if ".git" in names:
                self._note(_joined(folder, ".git"))
            if names.keys() >= {"HEAD", "objects", "refs"} or names.keys() >= {"HEAD", "commondir"}:
                self._note(folder)
                if known:
                    continue
            waiting += [_joined(folder, name) for name, inner in names.items() if inner and name != ".git"]

    def _watch(self, folder: str) -> bool:
        """Hear of new entries of a folder; whether that was so before."""
        if self._inotify < 0:
            return False
        path = os.fsencode(f"/proc/self/fd/{self._base}/{folder}")
        mask = _CREATED | _MOVED_TO | _ONLY_FOLDERS | _NO_LINKS
        watch = _libc.inotify_add_watch(self._inotify, path, ctypes.c_uint32(mask))
        if watch < 0:
            if ctypes.get_errno() == errno.ENOSPC:
                self._too_many = True
            return False
        before = self._folders.get(watch)
        self._folders[watch] = folder
        return before == folder

    def _note(self, git: str) -> None:
        if len(self._repositories) < _REPOSITORIES:
            self._repositories.setdefault(git, {})
        elif git not in self._repositories:
            self._too_many = True

    # -- what is in them -------------------------------------------------------------------------------

    def _changed(self, git: str) -> list[str]:
        status = self._status(git)
        if status is None:
            del self._repositories[git]
            return []
        if not stat.S_ISDIR(status.st_mode):
            return self._pointer(git, status)
        found: list[str] = []
        for folder in self._parts(git):
            for name in self._files(folder):
                path = _joined(folder, name)
                if self._is_new(git, path):
                    inner = PurePosixPath(path).relative_to(git).parent.as_posix()
                    where = "" if inner in (".", "hooks", "info") else f" (in {inner})"
                    found += [f"{text}{where}" for text in self._content(path, name)]
        return [text for text in found if self._tell(git, text)]

    def _pointer(self, git: str, status: os.stat_result) -> list[str]:
        """A link, or a file that says where the repository is: what it leads to is looked at as one."""
        if not self._is_new(git, git):
            return []
        try:
            target = os.fspath(git)
            if stat.S_ISREG(status.st_mode):
                data, _ = read_bytes(self._root, git, limit=_LIMIT)
                text = os.fsdecode(data.removeprefix(b"gitdir:").strip())
                target = text if text.startswith("/") else _joined(os.path.dirname(git) or ".", text)
            with locate(self._root, target) as place:
                if not self._is_part(place.path):
                    self._note(place.path)
        except (ToolError, OSError):  # it leads out of the workspace, where commands plant nothing
            return []
        return []

    def _is_part(self, path: str) -> bool:
        """Whether it is looked at already, as a submodule or linked worktree of a repository."""
        return any(
            path.startswith(_joined(git, part))
            for git in self._repositories
            for part in ("modules/", "worktrees/")
        )

    def _parts(self, git: str) -> Iterator[str]:
        """The git folder itself, and those of submodules and linked worktrees in it."""
        yield git
        waiting = [_joined(git, "modules"), _joined(git, "worktrees")]
        for _ in range(_PARTS):
            if not waiting:
                return
            folder = waiting.pop()
            try:
                names = self._names(folder)
            except OSError:
                continue
            if "HEAD" in names or "config" in names or "commondir" in names:
                yield folder
                waiting += [_joined(folder, name) for name in ("modules", "worktrees") if name in names]
            else:
                waiting += [_joined(folder, name) for name in names[:_PARTS]]

    def _files(self, folder: str) -> list[str]:
        try:
            hooks = [name for name in self._names(_joined(folder, "hooks")) if not name.endswith(".sample")]
        except OSError:
            hooks = []
        inner = [f"hooks/{name}" for name in hooks[:_HOOKS]]
        return ["config", "config.worktree", "commondir", "info/attributes", *inner]

    def _content(self, path: str, name: str) -> list[str]:
        """What is worth telling about a file that is new or changed."""
        if name.startswith("hooks/"):
            return [name]
        try:
            data, _ = read_bytes(self._root, path, limit=_LIMIT)
        except (ToolError, OSError):
            return [f"{name} (it cannot be read as a file)"]
        if name == "info/attributes":
            return in_attributes(data)
        if name == "commondir":
            return self._common(os.path.dirname(path), data)
        return in_configuration(data)

    def _common(self, folder: str, data: bytes) -> list[str]:
        text = os.fsdecode(data.strip())
        above = os.path.dirname(os.path.dirname(folder))
        target = os.path.normpath(text if text.startswith("/") else os.path.join(folder, text))
        if target == os.path.normpath(folder) or (
            "/worktrees/" in f"/{folder}" and target == os.path.normpath(above)
        ):
            return []
        return [f"commondir leads to {text[:100]!r}"]

    def _is_new(self, git: str, path: str) -> bool:
        """Whether a file came or changed since the last look, within a sandbox that could write it."""
        status = self._status(path)
        if status is None:
            return False
        signature = (status.st_ctime_ns, status.st_size, status.st_ino)
        known = self._repositories[git]
        before = known.get(path)
        known[path] = signature
        if before == signature or self._root / path in self._guarded:
            return False
        return before is not None or status.st_ctime_ns >= self._since

    def _tell(self, git: str, text: str) -> bool:
        if (git, text) in self._told or len(self._told) >= _TOLD:
            return False
        self._told.add((git, text))
        return True

    def _status(self, path: str) -> os.stat_result | None:
        try:
            return os.stat(path, dir_fd=self._base, follow_symlinks=False)
        except OSError:
            return None

    def _names(self, folder: str) -> list[str]:
        place = os.open(
            folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._base
        )
        try:
            return sorted(os.listdir(place))
        finally:
            os.close(place)


def _joined(folder: str, name: str) -> str:
    return name if folder == "." else f"{folder}/{name}"


def _notice(root: Path, git: str, found: list[str]) -> str:
    more = len(found) - _SHOWN
    listed = "; ".join(found[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return (
        f"The git repository {git} was made or changed meanwhile and names what git runs: {listed}. "
        f"Git outside the sandbox, or an editor, would run it: look at {root / git} before you use git there."
    )
