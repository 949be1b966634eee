"""Paths of a workspace: their one name, and descriptors that cannot lead out of it.

A path is named relative to the workspace (POSIX, no `.`/`..`, no symbolic link). Locating one gives an open
directory and a name in it, so that what follows acts on exactly what was checked: a link or a folder that
somebody swaps in meanwhile is never followed out. On Linux the kernel does it (`openat2` with
RESOLVE_BENEATH); where that call is missing, or links must be resolved to know their target, the path is
walked one component at a time with O_NOFOLLOW, which gives the same guarantee.
"""

import ctypes
import errno
import os
import stat as modes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tools.errors import EnvironmentFault, InvalidArguments, OutsideWorkspace

MAX_PATH_BYTES: Final = 4096
MAX_NAME_BYTES: Final = 255
MAX_LINKS: Final = 40

_DIRECTORY: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_OPENAT2: Final = 437
_NO_MAGICLINKS: Final = 0x02
_NO_SYMLINKS: Final = 0x04
_BENEATH: Final = 0x08
_WALK_INSTEAD: Final = frozenset(
    {errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.ELOOP, errno.EXDEV, errno.EAGAIN, errno.E2BIG}
)
"""Answers of openat2 that say "not available here" or "there are links": the walk decides those."""


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_also_named: dict[str, str] = {}
"""Workspaces that commands see under another path than ours, by our path."""


def name_too(root: Path, seen_at: Path | None) -> None:
    """From now on absolute paths below `seen_at` mean the workspace at `root` too; None ends that."""
    if seen_at is None:
        _also_named.pop(os.fspath(root), None)
    else:
        _also_named[os.fspath(root)] = os.path.normpath(seen_at)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a path leads: an open directory, a name in it that is no link, and the canonical path.

    `name` is "." where the path is a directory reached as such. The descriptor lives as long as the
    `locate` block that gave it. The file itself may not exist.
    """

    directory: int
    name: str
    path: str


def workspace_path(root: Path, path: str) -> str:
    """The path's name relative to `root`, "." for the root itself. Links are not resolved here.

    Raises:
        InvalidArguments: empty, with a NUL, not encodable, or longer than a file system takes.
        OutsideWorkspace: it leads out of the workspace by `..` or names an absolute path elsewhere.
    """
    if not path:
        raise InvalidArguments("The path is empty. Give a path relative to the workspace.")
    if "\0" in path:
        raise InvalidArguments("The path contains a NUL character. Give a plain path.")
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError as error:
        raise InvalidArguments(
            "The path contains characters that no file name can have (lone surrogates)."
        ) from error
    if len(encoded) > MAX_PATH_BYTES:
        raise InvalidArguments(f"The path is {len(encoded)} bytes long; the most is {MAX_PATH_BYTES}.")
    if path.startswith("/"):
        path = _below(root, path)
    parts: list[str] = []
    for part in path.split("/"):
        if part in ("", "."):
            continue
        if part != "..":
            if len(os.fsencode(part)) > MAX_NAME_BYTES:
                raise InvalidArguments(
                    f"The name {part[:40]!r}… is longer than {MAX_NAME_BYTES} bytes, which no file can have."
                )
            parts.append(part)
        elif parts:
            parts.pop()
        else:
            raise OutsideWorkspace(
                f"{path} leads outside the workspace. Give a path relative to it, or absolute inside it."
            )
    return "/".join(parts) or "."


@contextmanager
def locate(root: Path, path: str) -> Iterator[Place]:
    """Resolve every link of `path` inside the workspace, down to a directory and a name in it.

    Raises:
        OutsideWorkspace: a link leads out.
        InvalidArguments: as `workspace_path`.
        EnvironmentFault: the workspace itself is gone.
        OSError: a parent does not exist, is no directory, or may not be entered.
    """
    name = workspace_path(root, path)
    try:
        base = os.open(root, _DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise _gone(root, error) from error
    opened = [base]
    try:
        place = _at_once(base, name, opened) or _walk(root, base, name, opened)
        yield place
    finally:
        for descriptor in opened:
            os.close(descriptor)


def open_at_once(directory: int, path: str) -> int:
    """A descriptor to read what lies at a canonical path below an open directory, by one call of the kernel.

    For many files in a row; it never waits, and whoever opens looks what it is that was opened.

    Raises:
        OSError: nothing is there, a link is in the way, or this system has no such call: `locate` decides.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
    return _openat2(directory, path, flags, _BENEATH | _NO_MAGICLINKS | _NO_SYMLINKS)


def _gone(root: Path, error: OSError) -> EnvironmentFault:
    return EnvironmentFault(
        f"The workspace folder {root} cannot be opened: {error.strerror}. Nothing was done; tell the user.",
        errno=error.errno,
    )


def _below(root: Path, path: str) -> str:
    """The rest of an absolute path below `root`, also where it names the root by another way."""
    plain = os.path.normpath(path)
    for name in filter(None, (os.fspath(root), _also_named.get(os.fspath(root)))):
        prefix = name.rstrip("/")
        if plain == (prefix or "/") or plain.startswith(prefix + "/"):
            return plain[len(prefix) :].lstrip("/") or "."
    try:
        home = os.stat(root)
    except OSError as error:
        raise _gone(root, error) from error
    parts = plain.split("/")
    for count in range(2, len(parts) + 1):
        try:
            found = os.stat("/".join(parts[:count]))
        except OSError:
            break
        if (found.st_dev, found.st_ino) == (home.st_dev, home.st_ino):
            return "/".join(parts[count:]) or "."
    raise OutsideWorkspace(
        f"{path} is outside the workspace {root}. Give a path relative to it, or absolute inside it."
    )


def _at_once(base: int, name: str, opened: list[int]) -> Place | None:
    """The place of a path without any link, by one call of the kernel; None where the walk must decide."""
    parent, _, last = name.rpartition("/")
    if parent:
        try:
            directory = _openat2(base, parent, _DIRECTORY, _BENEATH | _NO_MAGICLINKS | _NO_SYMLINKS)
        except OSError as error:
            if error.errno in _WALK_INSTEAD:
                return None
            raise
        opened.append(directory)
    else:
        directory = base
    try:
        found = os.stat(last, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return Place(directory, last, name)
    return None if modes.S_ISLNK(found.st_mode) else Place(directory, last, name)


def _walk(root: Path, base: int, name: str, opened: list[int]) -> Place:
    """The place of a path, resolving links by hand: `..` steps back on descriptors, never on names."""
    chain = [base]
    names: list[str] = []
    pending = name.split("/")[::-1]
    links = 0
    while pending:
        part = pending.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if len(chain) == 1:
                raise OutsideWorkspace(f"{name} leads outside the workspace through a symbolic link.")
            chain.pop()
            names.pop()
            continue
        try:
            found = os.stat(part, dir_fd=chain[-1], follow_symlinks=False)
        except FileNotFoundError:
            if any(rest not in ("", ".") for rest in pending):
                raise
            return Place(chain[-1], part, "/".join([*names, part]))
        if modes.S_ISLNK(found.st_mode):
            links += 1
            if links > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
            target = os.readlink(part, dir_fd=chain[-1])
            if target.startswith("/"):
                try:
                    target = _below(root, target)
                except OutsideWorkspace as error:
                    raise OutsideWorkspace(
                        f"{name} leads outside the workspace: {'/'.join([*names, part])} is a symbolic link "
                        f"to {target}."
                    ) from error
                chain, names = [base], []
            pending.extend(target.split("/")[::-1])
            continue
        if not any(rest not in ("", ".") for rest in pending):
            return Place(chain[-1], part, "/".join([*names, part]))
        opened.append(os.open(part, _DIRECTORY | os.O_NOFOLLOW, dir_fd=chain[-1]))
        chain.append(opened[-1])
        names.append(part)
    return Place(chain[-1], ".", "/".join(names) or ".")


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _openat2(directory: int, path: str, flags: int, resolve: int) -> int:
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), path)
    how = _OpenHow(flags, 0, resolve)
    descriptor = _libc().syscall(
        ctypes.c_long(_OPENAT2),
        ctypes.c_int(directory),
        ctypes.c_char_p(os.fsencode(path)),
        ctypes.byref(how),
        ctypes.c_size_t(ctypes.sizeof(how)),
    )
    if descriptor < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)
    return descriptor
