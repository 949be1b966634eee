"""Files that can hold what a pattern needs, by the index; and lines found in them without another process."""

import asyncio
import codecs
import os
import re
import sqlite3
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tools.confinement import open_at_once
from tools.errors import EnvironmentFault, ToolError
from tools.files import Changed, Entry, open_file, read_bytes
from tools.patterns import Needed
from tools.ripgrep import CHUNK, LEAD, LINE_KEPT, FileMatches, Line

if TYPE_CHECKING:
    from tools.index import Index

PATIENCE: Final = 0.25
"""Seconds that changed files may take to be indexed before a search goes without the index."""
MOST_FILES: Final = 1500
"""Candidates above which looking at all files is as quick."""
MOST_BYTES: Final = 2_000_000
"""A file that has grown beyond this since it was indexed is left to ripgrep."""
HEAD: Final = 65_536
"""Bytes in which a file shows that it is binary."""

_UTF16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(slots=True)
class Candidates:
    """`paths` (sorted) may hold the literals. `others` are for ripgrep alone: too large for an index, or in
    another encoding."""

    paths: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)


async def candidates(index: "Index | None", start: Entry, wanted: Needed) -> Candidates | None:
    """Which files of a folder to look at; None where only looking at all of them can tell."""
    if index is None or start.kind != "directory" or not wanted.literals or index.state.phase != "fresh":
        return None
    if index.state.left_out.get("beyond"):
        return None  # the index does not know all files, and asking would cost time
    state = await index.refresh(None, PATIENCE)
    if not state.complete or state.left_out.get("beyond"):
        return None
    try:
        found = await asyncio.to_thread(_candidates, index, start.path, wanted.literals)
    except EnvironmentFault:
        return None  # the index is made anew: ripgrep knows as well
    if found is None:
        return None
    for_ripgrep = len(found.others) + (0 if wanted.exact else len(found.paths))
    return found if for_ripgrep <= MOST_FILES else None


def _candidates(index: "Index", folder: str, literals: tuple[bytes, ...]) -> Candidates | None:
    from tools.index import views

    found = Candidates()
    prefix = "" if folder == "." else f"{folder}/"
    with views.reading(index) as db:
        signatures = views.signatures(index, db)
        rows = signatures.holding(literals)
        paths = views.paths_of(db, rows).values()
        found.paths = sorted(path for path in paths if path.startswith(prefix))
        if signatures.others is None:
            signatures.others = sorted(_others(index.root, db, signatures.heads))
        found.others = [path for path in signatures.others if path.startswith(prefix)]
        if prefix and not found.paths and not found.others and not _is_indexed(db, prefix):
            return None  # a folder that git ignores is searched all the same when it is asked for
    return found


def _others(root: Path, db: sqlite3.Connection, heads: dict[tuple[int, int], bool]) -> Iterator[str]:
    from tools.index.schema import named_path

    out = db.execute("SELECT id, path, state, mtime_ns FROM files WHERE state != 'indexed'").fetchall()
    for row, stored, state, mtime in out:
        path = named_path(stored)
        if state in ("unreadable", "crashed") or _is_text(root, path, heads, (row, mtime)):
            yield path


def _is_indexed(db: sqlite3.Connection, prefix: str) -> bool:
    if not prefix.isprintable():
        return False
    following = prefix[:-1] + chr(ord("/") + 1)
    query = "SELECT 1 FROM files WHERE path >= ? AND path < ? LIMIT 1"
    return db.execute(query, (prefix, following)).fetchone() is not None


def _is_text(root: Path, path: str, known: dict[tuple[int, int], bool], key: tuple[int, int]) -> bool:
    """Whether a file that is not indexed is text all the same: too large, or in UTF-16."""
    if key not in known:
        try:
            with open_file(root, path) as (descriptor, _):
                head = os.pread(descriptor, HEAD, 0)
        except ToolError:
            return True  # ripgrep says why
        known[key] = head.startswith(_UTF16) or b"\0" not in head
    return known[key]


class Reading:
    """Reads many files of a workspace, each confined to it, with as few calls as there can be."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __enter__(self) -> "Reading":
        self._folder = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._folder)

    def read(self, path: str) -> bytes:
        """Raises ToolError where it is gone, no regular file, or larger than an indexed one can be."""
        try:
            descriptor = open_at_once(self._folder, path)
        except OSError:
            return read_bytes(self._root, path, MOST_BYTES)[0]
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES:
                raise Changed(f"{path} is no longer what was indexed.")
            data = os.read(descriptor, found.st_size + 1)
            while len(data) <= MOST_BYTES and (more := os.read(descriptor, CHUNK)):
                data += more
        except OSError as error:
            raise EnvironmentFault(f"{path} cannot be read: {error.strerror}.") from error
        finally:
            os.close(descriptor)
        return data


def matches_in(reading: Reading, path: str, literal: bytes, most: int, context: int) -> FileMatches | None:
    """The lines of a file that hold a literal, up to `most` of them; None where ripgrep must look.

    Raises:
        ToolError: it cannot be read (any more).
    """
    data = reading.read(path)
    if literal not in data and not data.startswith(_UTF16):
        return FileMatches(path)
    if b"\0" in data or data.startswith(_UTF16):
        return None
    # As ripgrep, positions are those behind a byte order mark.
    data = data.removeprefix(codecs.BOM_UTF8)
    found = FileMatches(path, content=data)
    hits: dict[int, Line] = {}
    for line in _matching(data, literal):
        hits[line.number] = line
        found.matches += 1
        if found.matches >= most:
            break
    found.lines = list(hits.values()) if not context else _with_context(data, hits, context)
    return found


def _matching(data: bytes, literal: bytes) -> Iterator[Line]:
    number, counted, at = 1, 0, data.find(literal)
    while at >= 0:
        start = data.rfind(b"\n", 0, at) + 1
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        number += data.count(b"\n", counted, start)
        counted = start
        yield _line(data, number, start, end, at - start)
        at = data.find(literal, end)


def _with_context(data: bytes, hits: dict[int, Line], context: int) -> list[Line]:
    ends = [found.start() for found in re.finditer(b"\n", data)]
    if not data.endswith(b"\n"):
        ends.append(len(data))
    lines: list[Line] = []
    shown = 0
    for number in hits:
        for near in range(max(number - context, shown + 1), min(number + context, len(ends)) + 1):
            start = ends[near - 2] + 1 if near > 1 else 0
            lines.append(hits.get(near) or _line(data, near, start, ends[near - 1]))
            shown = near
    return lines


def _line(data: bytes, number: int, start: int, end: int, found: int | None = None) -> Line:
    """As `tools.ripgrep` tells a line: without its ending, a long one cut around its first match."""
    plain = data[start:end].removesuffix(b"\r")
    before = max(min((found or 0) - LEAD, len(plain) - LINE_KEPT), 0) if len(plain) > LINE_KEPT else 0
    kept = plain[before : before + LINE_KEPT]
    after = len(plain) - before - len(kept)
    return Line(number, kept, start + before, found is not None, before, after)
