"""Where the paths of a command lead: into the workspace, out of it, or nobody knows."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal

from agent.judge.words import Word

Where = Literal["inside", "git", "root", "device", "temporary", "outside", "unknown"]
"""`git`: in a `.git` folder. `root`: the workspace itself or a folder above it, but only for deleting."""

DEVICES: Final = frozenset({"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty", "-"})
MAX_PLACES: Final = 8

_PIECES: Final = re.compile(r"[=:,@\s\"'()]+")
_PATTERN: Final = re.compile(r"[*?\[]")
_DESCRIPTOR: Final = re.compile(r"/dev/fd/\d+", re.ASCII)


class Places:
    """The workspace, and the folders in which a command may find itself.

    `cd` may fail, so after it both the old and the new folder count. `lost`: it may be anywhere.
    """

    def __init__(self, root: Path, cwd: str | None) -> None:
        self.root = os.path.realpath(root)
        self.folders = {cwd or self.root}
        self.lost = False
        self._known: dict[tuple[str, str], Where] = {}

    @property
    def home(self) -> bool:
        """Whether commands surely run in the workspace's own folder."""
        return not self.lost and {os.path.realpath(folder) for folder in self.folders} == {self.root}

    def enter(self, word: Word | None) -> None:
        """Take a `cd` into account."""
        if word is None or word.plain is None or self.where(word) not in ("inside", "git"):
            self.lost = True
            return
        for folder in tuple(self.folders):
            logical = os.path.normpath(os.path.join(folder, word.plain))
            physical = os.path.realpath(os.path.join(os.path.realpath(folder), word.plain))
            self.folders |= {logical, physical}
        self.lost = self.lost or len(self.folders) > MAX_PLACES

    def where(self, word: Word) -> Where:
        """Where a word leads that is a path."""
        if word.stream:
            return "device"
        if word.value is None:
            return "unknown"
        if word.tilde:
            return "outside"
        return self._where(word.value, word.glob)

    def _where(self, path: str, glob: bool) -> Where:
        if path in DEVICES or _DESCRIPTOR.fullmatch(path):
            return "device"
        if path == "":
            return "inside"
        if not path.startswith("/") and self.lost:
            return "unknown"
        found = {self._from(folder, path, glob) for folder in self.folders}
        order: tuple[Where, ...] = ("unknown", "outside", "root", "git", "temporary", "inside")
        return next(where for where in order if where in found)

    def _from(self, folder: str, path: str, glob: bool) -> Where:
        if (known := self._known.get((folder, path))) is not None:
            return known
        plain = path
        if glob and (first := _PATTERN.search(path)) is not None:
            plain = path[: path.rfind("/", 0, first.start()) + 1]
            rest = path[len(plain) :].split("/")
            if any(part == ".." or (part.startswith(".") and _PATTERN.search(part)) for part in rest):
                return "unknown"
        real = os.path.realpath(os.path.join(os.path.realpath(folder), plain))
        self._known[folder, path] = where = self._of(real, pattern=plain != path)
        return where

    def _of(self, real: str, *, pattern: bool) -> Where:
        if real == self.root:
            return "inside" if pattern else "root"
        if real.startswith(self.root.rstrip("/") + "/"):
            parts = real[len(self.root) :].lower().split("/")
            return "git" if ".git" in parts else "inside"
        # The sandbox has a /tmp of its own, but for a workspace in it.
        own = not self.root.startswith("/tmp/")
        return "temporary" if own and (real == "/tmp" or real.startswith("/tmp/")) else "outside"

    def strays(self, words: Iterable[Word]) -> tuple[Where, Word] | None:
        """The first argument that may lead out of the workspace, whatever the program makes of it."""
        for word in words:
            where = self._argument(word)
            if where in ("outside", "unknown", "temporary"):
                return where, word
        return None

    def _argument(self, word: Word) -> Where:
        if word.stream or word.value is None or word.tilde:
            return self.where(word)
        value = word.value
        pieces = [piece for piece in _PIECES.split(value) if piece]
        if value.startswith("-") and not value.startswith("--") and len(value) > 2:
            pieces.append(value[2:])
        if "://" in value and not value.startswith("file:"):
            pieces = []
        for piece in pieces:
            if piece.startswith(("/", "~")) or ".." in piece.split("/"):
                where = "outside" if piece.startswith("~") else self._where(piece, word.glob)
                if where in ("outside", "unknown", "temporary"):
                    return where
        if len(value) >= 4096 or (value.startswith("-") and self.lost):
            return "inside"
        return self._where(value, word.glob)  # behind `--`, what looks like a flag is a path too
