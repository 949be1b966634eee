"""Which folders hold what tools made and can make again: dependencies, virtual environments, caches.

A snapshot leaves them out and says so. They are known by a mark that their makers put into them
(`pyvenv.cfg`, `CACHEDIR.TAG`, a `.gitignore` that ignores everything), or by a name of `DEPENDENCIES` that
the workspace's own `.gitignore` files ignore. Other ignored files (`.env`, build results) are covered: undo
must restore them.
"""

import os
import stat
from fnmatch import fnmatchcase
from typing import Final

DEPENDENCIES: Final = frozenset(
    (
        ".cache",
        ".dart_tool",
        ".eggs",
        ".gradle",
        ".hypothesis",
        ".mypy_cache",
        ".next",
        ".nox",
        ".nuxt",
        ".parcel-cache",
        ".pytest_cache",
        ".ruff_cache",
        ".terraform",
        ".tox",
        ".turbo",
        ".venv",
        "Pods",
        "bower_components",
        "node_modules",
        "target",
        "venv",
    )
)
ALWAYS: Final = frozenset(("__pycache__",))
"""Never anything else, ignored or not."""
MARKS: Final = frozenset(("pyvenv.cfg", "CACHEDIR.TAG"))
IGNORE: Final = ".gitignore"
IGNORE_LIMIT: Final = 256 * 1024
"""Bytes of a `.gitignore` that are read."""
MAX_WILDCARDS: Final = 3

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def small_file(directory: int, name: str, limit: int) -> bytes | None:
    """The first `limit` bytes of a regular file in an open directory; None where there is none to read."""
    try:
        descriptor = os.open(name, _READ, dir_fd=directory)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return os.read(descriptor, limit)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def ignores_itself(directory: int) -> bool:
    """Whether a folder's own `.gitignore` ignores everything in it."""
    content = small_file(directory, IGNORE, IGNORE_LIMIT)
    lines = [line.strip() for line in (content or b"").splitlines()]
    return [line for line in lines if line and not line.startswith(b"#")] == [b"*"]


class Ignored:
    """What the `.gitignore` files on the way to a folder say of its name.

    Only patterns that can mean such a folder are understood: `name`, `name/`, `/name`, `some/path/name`,
    `**/name`, each perhaps behind `!` or with `/*` behind; wildcards only in the last part.
    """

    def __init__(self) -> None:
        self._levels: list[tuple[str, list[tuple[bool, str]]]] = []

    def enter(self, directory: int, prefix: str) -> None:
        """Go down into a folder with rules; `prefix` is its path and a slash (empty for the workspace)."""
        self._levels.append((prefix, _rules(directory)))

    def leave(self) -> None:
        self._levels.pop()

    def folder(self, path: str) -> bool:
        """Whether a folder below the entered ones is ignored. The rule nearest to it decides."""
        for prefix, rules in reversed(self._levels):
            for ignored, pattern in reversed(rules):
                if _means(pattern, path[len(prefix) :]):
                    return ignored
        return False


def _rules(directory: int) -> list[tuple[bool, str]]:
    content = small_file(directory, IGNORE, IGNORE_LIMIT) or b""
    rules: list[tuple[bool, str]] = []
    for line in content.decode("utf-8", "surrogateescape").splitlines():
        pattern = line.strip()
        if pattern and not pattern.startswith("#"):
            bare = pattern.removeprefix("!").removesuffix("/**").removesuffix("/*").removesuffix("/")
            rules.append((not pattern.startswith("!"), bare))
    return rules


def _means(pattern: str, path: str) -> bool:
    above, slash, last = pattern.rpartition("/")
    folder, _, name = path.rpartition("/")
    # A pattern with many wildcards could be made to match for minutes; none that means a folder has them.
    if last.count("*") > MAX_WILDCARDS or not fnmatchcase(name, last):
        return False
    if not slash or above == "**":
        return True
    if above.startswith("**/"):
        return f"/{folder}".endswith(above[2:])
    return folder == above.lstrip("/")
