"""What git (and ripgrep) would leave out of a workspace, for single paths."""

import re
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tools.errors import ToolError
from tools.files import read_bytes

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

FILES: Final = (".gitignore", ".ignore", ".rgignore")
"""Ignore files of a folder, the later one having the last word."""
MAX_BYTES: Final = 256 * 1024
"""The largest ignore file that is honoured."""


class Ignores:
    """Answers for one request: every ignore file is read at most once, through confined descriptors."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._specs: dict[str, GitIgnoreSpec | None] = {}
        self._folders: dict[str, bool] = {".": False}

    def ignored(self, path: str, folder: bool) -> bool:
        """Whether a canonical path, or a folder above it, is ignored."""
        parent = path.rpartition("/")[0] or "."
        if path == "." or (parent != "." and self._folder(parent)):
            return path != "."
        return self._folder(path) if folder else self._matched(path, False)

    def _folder(self, path: str) -> bool:
        known = self._folders.get(path)
        if known is None:
            parent = path.rpartition("/")[0] or "."
            known = self._folders[path] = self._folder(parent) or self._matched(path, True)
        return known

    def _matched(self, path: str, folder: bool) -> bool:
        """The verdict of the nearest ignore file that has one."""
        parts = path.split("/")
        mark = "/" * folder
        for count in range(len(parts) - 1, -1, -1):
            spec = self._spec("/".join(parts[:count]))
            if spec is not None:
                verdict = spec.check_file("/".join(parts[count:]) + mark).include
                if verdict is not None:
                    return verdict
        return bool(self._excluded and self._excluded.match_file(path + mark))

    def _spec(self, folder: str) -> "GitIgnoreSpec | None":
        if folder not in self._specs:
            prefix = folder + "/" if folder else ""
            lines = [line for name in FILES for line in self._lines(prefix + name)]
            self._specs[folder] = _spec(lines)
        return self._specs[folder]

    @cached_property
    def _excluded(self) -> "GitIgnoreSpec | None":
        return _spec(self._lines(".git/info/exclude"))

    def _lines(self, path: str) -> list[str]:
        try:
            data, _ = read_bytes(self.root, path, MAX_BYTES)
        except ToolError:
            return []  # absent, no regular file, or leading outside: git would not read it either
        return data.decode("utf-8", "surrogateescape").splitlines()


def _spec(lines: list[str]) -> "GitIgnoreSpec | None":
    kept = [line for line in lines if line.strip() and not line.startswith("#")]
    if not kept:
        return None
    from pathspec import GitIgnoreSpec  # takes a while to load, which a server's start need not wait for

    try:
        return GitIgnoreSpec.from_lines(kept)
    except (ValueError, re.error):
        # One line that is no pattern must not make the others void.
        return GitIgnoreSpec.from_lines([line for line in kept if _is_pattern(line)])


def _is_pattern(line: str) -> bool:
    from pathspec import GitIgnoreSpec

    try:
        GitIgnoreSpec.from_lines([line])
    except (ValueError, re.error):
        return False
    return True
