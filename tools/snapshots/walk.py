"""One look at every path of a workspace: lines for a manifest, and the content that is new.

Folders are entered one name at a time without following a link, so nothing outside is ever read. Nothing
named `.git` is looked into or touched, at any depth: nested repositories and submodules are plain files.
"""

import errno
import os
import stat
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from tools.snapshots.generated import ALWAYS, DEPENDENCIES, IGNORE, MARKS, Ignored, ignores_itself
from tools.snapshots.manifest import Entry, Reason
from tools.snapshots.objects import Batch
from tools.snapshots.stat_cache import Seen, is_settled, seen, stat_of, stat_of_folder

MAX_DEPTH: Final = 200
TRIES: Final = 3
"""Readings of a file that changes while it is read."""
EXAMPLES: Final = 3
READING, LOOKING = 0.5, 0.6
"""Shares of a look's seconds. A busy machine stretches looking and naming alike: naming costs about half as
much."""
COMMIT_FILES: Final = 4096
COMMIT_BYTES: Final = 64 << 20
"""New content is brought to the disk in portions, so that the time it takes is seen while some is left."""
TELLING: Final = MARKS | {IGNORE}
"""Names that say something of the folder they are in."""

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_GONE: Final = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO))


@dataclass(frozen=True, slots=True)
class Limits:
    """What one snapshot may cost. Beyond it paths are left out with the reason `budget`, and said.

    `seconds` bounds all of it: content is read for the first half, folders are entered for three fifths, and
    the rest is for naming the state and for the disk. `new_bytes` bounds what is read, `file_bytes` a single
    file.
    """

    seconds: float = 10.0
    new_bytes: int = 1 << 30
    file_bytes: int = 64 << 20
    entries: int = 1_000_000


@dataclass(slots=True)
class Look:
    """What a look found: per path its line (see `line_of`), which the next look begins with."""

    lines: dict[str, Seen] = field(default_factory=dict)
    files: int = 0
    bytes: int = 0
    read: int = 0
    """Files whose content was read."""
    left_out: Counter[Reason] = field(default_factory=Counter)
    examples: dict[Reason, list[str]] = field(default_factory=dict)


class Walk:
    """`Walk(batch, known, limits).look(root)`: `known` is what earlier looks have seen."""

    def __init__(self, batch: Batch, known: dict[str, Seen], limits: Limits) -> None:
        self.batch, self.known, self.limits = batch, known, limits
        self.found = Look()
        self.ignored = Ignored()
        now = time.monotonic()
        self.reading_until = now + limits.seconds * READING
        self.until = now + limits.seconds * LOOKING
        self.new_bytes = 0
        self.device = -1

    def look(self, root: int) -> Look:
        """Look at everything below an open folder.

        Raises:
            SnapshotError: the store cannot be written.
            OSError: the folder itself cannot be listed.
        """
        self.device = os.fstat(root).st_dev
        self._folder(root, "", 0)
        return self.found

    def _folder(self, directory: int, prefix: str, depth: int) -> None:
        found = self.found
        lines, known = found.lines, self.known
        folders: list[tuple[bool, str, os.stat_result]] = []
        with os.scandir(directory) as listed:
            entries = list(listed)
        telling = {entry.name for entry in entries if entry.name in TELLING}
        if depth and telling and self._is_generated(directory, telling):
            self._leave_out(prefix[:-1], stat.S_IFDIR, "dependencies")
            return
        entries.reverse()
        while entries:
            entry = entries.pop()  # it holds all it was told of the file: a large folder would hold a lot
            name = entry.name
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            except OSError:
                self._leave_out(prefix + name, 0, "unreadable")
                continue
            mode = status.st_mode
            if stat.S_ISREG(mode) and name != ".git":
                path = prefix + name
                before = known.get(path)
                if before is not None and before.startswith(stat_of(status)):
                    lines[path] = before
                    found.files += 1
                    found.bytes += status.st_size
                else:
                    self._file(directory, name, path, status)
            elif name == ".git":
                self._leave_out(prefix + name, mode, "git")
            elif stat.S_ISDIR(mode):
                folders.append((name in DEPENDENCIES, name, status))
            else:
                self._special(directory, name, prefix + name, mode)
        if not folders:
            return
        # What may be generated comes last: if time runs out, it is what is missing.
        folders.sort(key=_late)
        ruled = IGNORE in telling
        if ruled:
            self.ignored.enter(directory, prefix)
        try:
            for _, name, status in folders:
                self._enter(directory, name, prefix + name, status, depth)
        finally:
            if ruled:
                self.ignored.leave()

    def _is_generated(self, directory: int, telling: set[str]) -> bool:
        return not telling.isdisjoint(MARKS) or (IGNORE in telling and ignores_itself(directory))

    def _enter(self, directory: int, name: str, path: str, status: os.stat_result, depth: int) -> None:
        mode = status.st_mode
        if name in ALWAYS or (name in DEPENDENCIES and self.ignored.folder(path)):
            self._leave_out(path, mode, "dependencies")
            return
        if depth >= MAX_DEPTH or self._exhausted():
            self._leave_out(path, mode, "budget")
            return
        if status.st_dev != self.device:  # another file system is mounted here
            self._leave_out(path, mode, "special")
            return
        try:
            child = os.open(name, _FOLDER, dir_fd=directory)
        except OSError as error:
            if error.errno not in _GONE:
                self._leave_out(path, mode, "unreadable")
            return
        try:
            before = self.known.get(path)
            if before is None or not before.startswith(stat_of_folder(mode)):
                encoded = os.fsencode(path)
                line = Entry(encoded, "directory", stat.S_IMODE(mode)).line()
                before = seen(line, encoded, stat_of_folder(mode))
            self.found.lines[path] = before
            self._folder(child, f"{path}/", depth + 1)
        except OSError:  # it cannot be listed
            self._leave_out(path, mode, "unreadable")
        finally:
            os.close(child)

    def _file(self, directory: int, name: str, path: str, status: os.stat_result) -> None:
        """A file that is new or changed: its content goes into the store."""
        if status.st_size > self.limits.file_bytes:
            self._leave_out(path, status.st_mode, "too_large", status.st_size)
            return
        if time.monotonic() > self.reading_until or self.new_bytes + status.st_size > self.limits.new_bytes:
            self._leave_out(path, status.st_mode, "budget", status.st_size)
            return
        try:
            descriptor = os.open(name, _FILE, dir_fd=directory)
        except OSError as error:
            if error.errno not in _GONE:
                self._leave_out(path, status.st_mode, "unreadable", status.st_size)
            return
        try:
            self._content(descriptor, path)
        except OSError:
            self._leave_out(path, status.st_mode, "unreadable", status.st_size)
        finally:
            os.close(descriptor)

    def _content(self, descriptor: int, path: str) -> None:
        for _ in range(TRIES):
            before_ns, status = time.time_ns(), os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > self.limits.file_bytes:
                break
            name, size = self.batch.put_file(descriptor, status.st_size)
            self.new_bytes += size
            if len(self.batch) >= COMMIT_FILES or self.batch.written - self.batch.committed >= COMMIT_BYTES:
                self.batch.commit()
            after = os.fstat(descriptor)
            if _same(status, after) and size == after.st_size:
                encoded = os.fsencode(path)
                entry = Entry(encoded, "file", stat.S_IMODE(after.st_mode), size, name)
                settled = is_settled(after, before_ns)
                self.found.lines[path] = (
                    seen(entry.line(), encoded, stat_of(after)) if settled else seen(entry.line(), encoded)
                )
                self.found.files += 1
                self.found.bytes += size
                self.found.read += 1
                return
        self._leave_out(path, os.fstat(descriptor).st_mode, "busy")

    def _special(self, directory: int, name: str, path: str, mode: int) -> None:
        if stat.S_ISLNK(mode):
            try:
                target = os.fsencode(os.readlink(name, dir_fd=directory))
            except OSError:
                return
            content = self.batch.put(target)
            self._add(Entry(os.fsencode(path), "link", 0o777, len(target), content), path)
        elif stat.S_ISFIFO(mode):
            self._add(Entry(os.fsencode(path), "fifo", stat.S_IMODE(mode)), path)
        else:
            self._leave_out(path, mode, "special")

    def _add(self, entry: Entry, path: str) -> None:
        self.found.lines[path] = seen(entry.line(), entry.path)

    def _leave_out(self, path: str, mode: int, reason: Reason, size: int = 0) -> None:
        self._add(Entry(os.fsencode(path), "left_out", stat.S_IMODE(mode), size, reason), path)
        self.found.left_out[reason] += 1
        examples = self.found.examples.setdefault(reason, [])
        if len(examples) < EXAMPLES:
            examples.append(path)

    def _exhausted(self) -> bool:
        return time.monotonic() > self.until or len(self.found.lines) > self.limits.entries


def _late(folder: tuple[bool, str, os.stat_result]) -> tuple[bool, str]:
    return folder[:2]


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_size, one.st_mtime_ns, one.st_ctime_ns, one.st_mode) == (
        other.st_size,
        other.st_mtime_ns,
        other.st_ctime_ns,
        other.st_mode,
    )
