"""One workspace in the child: what of it has changed, worked off in slices."""

import os
import sqlite3
import stat as modes
import time
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from tools.errors import ToolError
from tools.files import open_file
from tools.index.catalog import Catalog, Entry, Stamp
from tools.index.claim import Claim
from tools.index.journal import Journal
from tools.index.languages import language_of
from tools.index.layer import IndexedFile
from tools.index.parsing import MAX_BYTES, parse
from tools.index.schema import discard
from tools.index.state import Phase
from tools.index.walk import Walk
from tools.index.watch import Unwatchable, Watch

MAX_FILES: Final = 100_000
"""Files an index holds; those in a known language come first."""
SWEEP_S: Final = 300.0
"""All files are looked at anew so often, for what no watch tells (other machines, memory maps)."""
SLICE_S: Final = 0.05
BATCH_FILES: Final = 200
BATCH_BYTES: Final = 4_000_000
BATCH_S: Final = 0.5
"""What one transaction holds at most."""
MAX_FOLDERS_LISTED: Final = 30
RACY_NS: Final = 20_000_000
"""A file that changed this shortly before it was read may change again without showing it."""
_CHECKED: Final = 500


class Site:
    """The index of one workspace. `step` until it says that nothing is left to do."""

    def __init__(self, root: Path, database: Path, journal: Journal) -> None:
        self._root, self._database, self._journal = root, database, journal
        self._catalog: Catalog | None = None
        self._claim: Claim | None = None
        self._folder = -1
        self._watch: Watch | None = None
        self._known_folders: set[str] = set()
        self._dirty: set[str] = set()
        self._waiting: list[int] = []
        self._serving: list[int] = []
        self._answered: list[int] = []
        self._work: Iterator[None] | None = None
        self._swept = float("-inf")
        self._rebuilt = False
        self._beyond = 0
        self._phase: Phase = "cold"
        self._done = self._total = 0
        self._left_out: dict[str, int] = {}
        self._message = ""

    # ---- what the child asks

    def ask(self, number: int, paths: Iterable[str] | None) -> None:
        """Answer `number` when everything that has changed by now is indexed."""
        self._waiting.append(number)
        self._dirty.update(paths or ())

    def suspect(self, path: str) -> None:
        """The process died at this file."""
        try:
            self._open()
            stamp = self._stamp(path)
            if stamp is not None:
                self._store().strike(path, stamp)
        except (OSError, sqlite3.Error, ToolError) as error:
            self._fail(error)

    def step(self) -> bool:
        """Work for a slice of time; whether there is more to do."""
        until = time.monotonic() + SLICE_S
        try:
            while time.monotonic() < until:
                if self._work is None:
                    if not self._waiting and not self._overdue():
                        return False
                    self._serving, self._waiting = self._waiting, []
                    self._work = self._pass()
                try:
                    next(self._work)
                except StopIteration:
                    self._end("fresh")
        except (OSError, sqlite3.Error, ToolError) as error:
            self._fail(error)
        return self._work is not None or bool(self._waiting)

    def answered(self) -> list[int]:
        """Requests that are done since the last call."""
        answered, self._answered = self._answered, []
        return answered

    def report(self) -> dict[str, Any]:
        return {
            "root": str(self._root),
            "phase": self._phase,
            "done": self._done,
            "total": self._total,
            "left_out": self._left_out,
            "message": self._message,
        }

    def close(self) -> None:
        self._work = None
        self._release()

    # ---- how it ends

    def _release(self) -> None:
        """Close the database, the watch and the folder."""
        if self._catalog is not None:
            self._catalog.close()
        if self._claim is not None:
            self._claim.release()
        if self._watch is not None:
            self._watch.close()
        if self._folder >= 0:
            os.close(self._folder)
        self._catalog, self._claim, self._watch, self._folder = None, None, None, -1

    def _end(self, phase: Phase, message: str = "") -> None:
        self._phase, self._message, self._work = phase, message, None
        self._answered += self._serving
        self._serving = []

    def _fail(self, error: Exception) -> None:
        """A damaged database is made anew, once; anything else is said to whoever asked."""
        damaged = isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError)
        self.close()
        self._swept = float("-inf")
        if damaged and not self._rebuilt:
            self._rebuilt = True
            discard(self._database)
            self._waiting = self._serving + self._waiting
            self._serving = []
            return
        self._end("unavailable", getattr(error, "message", "") or f"{type(error).__name__}: {error}")

    def _overdue(self) -> bool:
        return self._phase == "fresh" and time.monotonic() - self._swept > SWEEP_S

    # ---- one pass

    def _pass(self) -> Iterator[None]:
        self._open()
        dirty, self._dirty = self._dirty, set()
        everything = self._swept == float("-inf") or self._watch is None or self._overdue()
        if self._watch is not None:
            changes = self._watch.changes()
            dirty |= changes.files
            everything |= changes.everything
        if not everything and dirty:
            dirty, everything = self._sorted_out(dirty)
        if everything:
            yield from self._sweep(dirty)
        elif dirty:
            yield from self._index(sorted(dirty), dirty)
            self._left_out = self._store().left_out(self._beyond)
            self._done = self._total = self._store().count()

    def _open(self) -> None:
        """Open what is not open yet, anew where the folder is another than before."""
        found = os.stat(self._root)
        if self._folder >= 0:
            mine = os.fstat(self._folder)
            if (mine.st_dev, mine.st_ino) == (found.st_dev, found.st_ino):
                return
            self._release()
            self._swept = float("-inf")
        self._folder = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._claim = Claim(self._database.parent, self._root)
        self._catalog = Catalog(self._database)
        try:
            self._watch = Watch(self._folder)
        except Unwatchable:
            self._watch = None

    def _store(self) -> Catalog:
        assert self._catalog is not None
        return self._catalog

    def _sorted_out(self, dirty: set[str]) -> tuple[set[str], bool]:
        """Which of the touched paths concern the index; or whether only a walk can tell."""
        wanted: set[str] = set()
        unknown: dict[str, list[str]] = {}
        for path in dirty:
            if self._store().stamp(path) is not None:
                wanted.add(path)
            elif self._stamp(path) is not None:
                unknown.setdefault(path.rpartition("/")[0], []).append(path)
        if len(unknown) > MAX_FOLDERS_LISTED or any(folder not in self._known_folders for folder in unknown):
            return dirty, True
        if unknown:
            walk = Walk(self._folder, tuple(folder or "." for folder in unknown))
            for _ in walk:
                pass
            listed = {path.removeprefix("./") for path in walk.paths}
            wanted.update(path for paths in unknown.values() for path in paths if path in listed)
        return wanted, False

    def _sweep(self, dirty: set[str]) -> Iterator[None]:
        """Walk, look at every file, index what differs. `dirty` files are read whatever they look like."""
        if self._phase in ("cold", "unavailable"):
            self._phase = "warming"
        paths: list[str] = []
        for _ in range(3):
            walk = Walk(self._folder)
            yield from walk
            paths = walk.paths
            self._known_folders = _folders(paths)
            if not (yield from self._watch_folders()):
                break  # files that came between the walk and the watch would be missed: walk again
        paths.sort(key=lambda path: (language_of(path) is None, path))
        self._beyond = max(len(paths) - MAX_FILES, 0)
        del paths[MAX_FILES:]
        known = dict(self._store().stamps())
        changed: list[str] = []
        for number, path in enumerate(paths, 1):
            stamp = self._stamp(path)
            if stamp is not None and (known.pop(path, None) != stamp or path in dirty):
                changed.append(path)
            if number % _CHECKED == 0:
                yield
        gone = list(known)
        del known
        for at in range(0, len(gone), _CHECKED):
            self._store().remove(gone[at : at + _CHECKED])
            yield
        if changed:
            self._phase = "warming"
        self._total, self._done = len(paths), len(paths) - len(changed)
        yield from self._index(changed, dirty)
        self._left_out = self._store().left_out(self._beyond)
        self._swept = time.monotonic()
        self._rebuilt = False
        if self._claim is not None:
            self._claim.touch()

    def _watch_folders(self) -> Iterator[None]:
        """Watch the folders that hold indexed files and those directly in them; True where any was new."""
        if self._watch is None:
            return False
        added = 0
        try:
            for number, folder in enumerate(sorted(self._known_folders), 1):
                added += self._watch.add([folder, *self._below(folder)])
                if number % _CHECKED == 0:
                    yield
        except Unwatchable:
            self._watch.close()
            self._watch = None
            return False
        return added > 0

    def _below(self, folder: str) -> list[str]:
        try:
            descriptor = os.open(
                folder or ".",
                os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC,
                dir_fd=self._folder,
            )
        except OSError:
            return []
        try:
            with os.scandir(descriptor) as found:
                names = [
                    one.name for one in found if one.is_dir(follow_symlinks=False) and one.name != ".git"
                ]
        finally:
            os.close(descriptor)
        return [f"{folder}/{name}" if folder else name for name in names]

    def _stamp(self, path: str) -> Stamp | None:
        """None where there is no regular file."""
        try:
            found = os.stat(path, dir_fd=self._folder, follow_symlinks=False)
        except (OSError, ValueError):
            return None
        return _stamped(found) if modes.S_ISREG(found.st_mode) else None

    # ---- files

    def _index(self, paths: list[str], forced: set[str]) -> Iterator[None]:
        """Read, parse and write files. What another server has indexed meanwhile is passed over."""
        batch: list[Entry] = []
        size, began = 0, time.monotonic()
        for path in paths:
            stamp = self._stamp(path)
            if stamp is None:
                self._store().remove([path])
            elif path in forced or self._store().stamp(path) != stamp:
                entry = self._entry(path, stamp)
                batch.append(entry)
                size += len(entry.file.data) if entry.file is not None else 0
            self._done += 1
            if len(batch) >= BATCH_FILES or size >= BATCH_BYTES or time.monotonic() - began > BATCH_S:
                self._write(batch)
                batch, size, began = [], 0, time.monotonic()
            yield
        if batch:
            self._write(batch)
        self._done = min(self._done, self._total)

    def _write(self, batch: list[Entry]) -> None:
        """Write files; those that a layer cannot take are left out, each by itself."""
        try:
            self._store().write(batch)
        except (OSError, sqlite3.Error):
            raise
        except Exception:  # noqa: BLE001 - as below
            traceback.print_exc()
            for entry in batch:
                try:
                    self._store().write([entry])
                except (OSError, sqlite3.Error):
                    raise
                except Exception:  # noqa: BLE001 - whatever a hostile file makes a library raise
                    self._store().write([Entry(entry.path, entry.stamp, entry.language, "crashed")])

    def _entry(self, path: str, stamp: Stamp) -> Entry:
        if stamp[0] > MAX_BYTES:
            return Entry(path, stamp, language_of(path), "large")
        if self._store().is_out(path, stamp):
            return Entry(path, stamp, language_of(path), "crashed")
        try:
            with open_file(self._root, path) as (descriptor, _):
                found = os.fstat(descriptor)
                data = _read(descriptor, found.st_size)
        except (ToolError, OSError):
            return Entry(path, stamp, language_of(path), "unreadable")
        stamp = _stamped(found)
        if time.time_ns() - found.st_ctime_ns < RACY_NS:
            stamp = (stamp[0], stamp[1], 0, stamp[3])
        name = language_of(path, data)
        if len(data) > MAX_BYTES:
            return Entry(path, stamp, name, "large")
        if b"\0" in data:
            return Entry(path, stamp, name, "binary")
        if name is None:
            return Entry(path, stamp, None, "indexed", IndexedFile(0, path, None, data, (), {}))
        try:
            with self._journal.working_on(str(self._root), path):
                parsed, words = parse(name, data)
        except Exception:  # noqa: BLE001 - whatever a hostile file makes a parser raise
            traceback.print_exc()
            return Entry(path, stamp, name, "crashed")
        return Entry(path, stamp, name, "indexed", IndexedFile(0, path, name, data, parsed.symbols, words))


def _stamped(found: os.stat_result) -> Stamp:
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def _read(descriptor: int, size: int) -> bytes:
    pieces: list[bytes] = []
    total = 0
    while total <= MAX_BYTES and (piece := os.read(descriptor, MAX_BYTES + 1 - total)):
        pieces.append(piece)
        total += len(piece)
        if total == size:  # what grows meanwhile has another stamp
            break
    return b"".join(pieces)


def _folders(paths: Iterable[str]) -> set[str]:
    """The folders the files are in and those above them, "" being the workspace."""
    folders = {""}
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return folders
