"""Several files changed together: all of them or none, also where the process dies in the middle.

All new contents are first written and synced beside their places, under names that nobody uses, so a full
disk is met before anything changes. Then a journal in the workspace's root says what is about to happen,
and each file changes by one rename, its old content being kept under a second name. What goes wrong until the
journal is closed is undone. Where the process dies before that, the journal is still there, and `recover`
undoes it: its lock tells it from one that is in use.
"""

import fcntl
import os
import secrets
import stat as modes
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import orjson
from pydantic import TypeAdapter, ValidationError

from tools.confinement import Place
from tools.errors import ToolError
from tools.files import explained, make_parents, read_bytes, stat
from tools.relocation import entry_at, rename_new
from tools.staging import Changed, exists, holds, like, named, own, remove, sync, written
from tools.workspace import content_hash

PREFIX: Final = ".etude-"
JOURNAL: Final = ".journal"
DONE: Final = ".done"
MAX_JOURNAL: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class FileWrite:
    """One file: `before` None makes it, `after` None deletes it. Paths are canonical.

    `source` is a file whose owner, mode and attributes a new one takes over; `mode` permission bits to set.
    """

    path: str
    before: bytes | None
    after: bytes | None
    mode: int | None = None
    source: str | None = None


@dataclass(slots=True)
class _Step:
    """What the journal knows of one file. `new` and `old` are names beside it, `after` a hash of the new one.

    Without `old` the file is made, without `new` it is deleted.
    """

    path: str
    new: str | None = None
    old: str | None = None
    after: str | None = None


@dataclass(slots=True)
class _Journal:
    steps: list[_Step]
    made: list[str]
    version: int = 1


@dataclass(slots=True)
class Transaction:
    """One use: `apply`, then `commit` or `undo`. Blocks: for a thread."""

    root: Path
    writes: Sequence[FileWrite]
    steps: list[_Step] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    modes: dict[str, int] = field(default_factory=dict)
    """Permission bits of the files written, by path."""
    _name: str = field(default_factory=lambda: PREFIX + secrets.token_hex(8))
    _journal: int | None = None
    _done: list[_Step] = field(default_factory=list)

    def apply(self, check: Callable[[], None]) -> None:
        """Change every file, or none. `check` runs last before the first of them changes, and may raise.

        Raises:
            Changed: a file is not what it was; ToolError: as for a single file. Nothing has changed then.
        """
        try:
            self.made += _missing(self.root, self.writes)
            self.steps += [self._step(number, write) for number, write in enumerate(self.writes)]
            self._open_journal()
            for step, write in zip(self.steps, self.writes, strict=True):
                if write.before is None:
                    make_parents(self.root, write.path)
                self._stage(step, write)
            check()
            for step, write in zip(self.steps, self.writes, strict=True):
                self._done.append(step)
                with explained(step.path, writing=True), entry_at(self.root, step.path) as place:
                    _change(place, step, write)
                    sync(place)
        except BaseException:
            self.undo()
            raise

    def commit(self) -> None:
        """Make it final: old contents go, and the journal."""
        if self._journal is not None:
            try:
                with entry_at(self.root, self._name + JOURNAL) as place:
                    done = Place(place.directory, self._name + DONE, self._name + DONE)
                    rename_new(place, done)
                    sync(place)
            except BaseException:
                self.undo()
                raise
        try:
            for step in self.steps:
                _forget(self.root, step)
        except BaseException:
            self._unlock()  # it is done all the same: `recover` clears up after it
            raise
        self._close_journal(DONE)

    def undo(self) -> None:
        """Every file as it was."""
        for step in reversed(self._done):
            _reverse(self.root, step)
        for step in self.steps:
            _forget(self.root, step)
        _remove_folders(self.root, self.made)
        self._close_journal(JOURNAL)

    def _step(self, number: int, write: FileWrite) -> _Step:
        beside = f"{self._name}-{number}"
        return _Step(
            write.path,
            new=None if write.after is None else f"{beside}.new.tmp",
            old=None if write.before is None else f"{beside}.old.tmp",
            after=None if write.after is None else content_hash(write.after),
        )

    def _stage(self, step: _Step, write: FileWrite) -> None:
        """Put the new content beside its place."""
        if write.after is None or step.new is None:
            return
        with explained(write.path, writing=True), entry_at(self.root, write.path) as place:
            if write.before is not None:
                _require_writable(place)
            mode = 0o666 if write.before is None else 0o600
            with written(place, write.after, mode) as (descriptor, name):
                self._dress(place, descriptor, write)
                os.fsync(descriptor)
                if name is None:
                    named(place, descriptor, step.new)
                else:
                    os.rename(name, step.new, src_dir_fd=place.directory, dst_dir_fd=place.directory)
                self.modes[write.path] = modes.S_IMODE(os.fstat(descriptor).st_mode)

    def _dress(self, place: Place, descriptor: int, write: FileWrite) -> None:
        """Owner, bits and attributes of the file that is replaced or moved."""
        if write.before is not None:
            like(place, descriptor, _looked_at(place), write.mode)
        elif write.source is not None:
            with entry_at(self.root, write.source) as source:
                like(source, descriptor, _looked_at(source), write.mode)
        else:
            own(self.root, descriptor)
            if write.mode is not None:
                os.fchmod(descriptor, write.mode)

    def _open_journal(self) -> None:
        """A single change is one rename, which needs no journal."""
        if len(self.steps) < 2:
            return
        record = asdict(_Journal(self.steps, self.made))
        name = self._name + JOURNAL
        with explained(name, writing=True), entry_at(self.root, name) as place:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._journal = os.open(place.name, flags, 0o600, dir_fd=place.directory)
            fcntl.flock(self._journal, fcntl.LOCK_EX)
            data = orjson.dumps(record)
            while data:
                data = data[os.write(self._journal, data) :]
            os.fsync(self._journal)
            sync(place)

    def _close_journal(self, suffix: str) -> None:
        if self._journal is None:
            return
        with entry_at(self.root, self._name + suffix) as place:
            remove(place, place.name)
        self._unlock()

    def _unlock(self) -> None:
        if self._journal is not None:
            os.close(self._journal)
            self._journal = None


def recover(root: Path) -> list[str]:
    """Undo what processes that died have left half-done in a workspace; the files that were put back.

    A file that somebody changed after that is left as it is. Journals come from the workspace, so they are
    trusted no further than a file tool: nothing outside it, nothing of git's.
    """
    restored: list[str] = []
    with os.scandir(root) as found:
        names = sorted(
            entry.name
            for entry in found
            if entry.name.startswith(PREFIX) and entry.name.endswith((JOURNAL, DONE))
        )
    for name in names:
        try:
            restored += _recovered(root, name)
        except (ToolError, OSError):
            continue  # what is no journal of ours, or may not be read, keeps nobody from working
    return restored


def _recovered(root: Path, name: str) -> list[str]:
    with explained(name), entry_at(root, name) as place:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(place.name, flags, dir_fd=place.directory)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return []  # it is in use
            steps, made = _parsed(os.read(descriptor, MAX_JOURNAL))
            restored = []
            for step in reversed(steps):
                if name.endswith(JOURNAL) and _reverse(root, step):
                    restored.append(step.path)
            for step in steps:
                _forget(root, step)
            if name.endswith(JOURNAL):
                _remove_folders(root, made)
            remove(place, place.name)
            return restored
        finally:
            os.close(descriptor)


def _parsed(data: bytes) -> tuple[list[_Step], list[str]]:
    """The steps of a journal; none of one that was cut off, which means that nothing had changed yet."""
    try:
        record = TypeAdapter(_Journal).validate_json(data, strict=True)
    except ValidationError:
        return [], []
    steps, made = record.steps, record.made
    beside = [name for step in steps for name in (step.new, step.old) if name is not None]
    if any("/" in name or not (name.startswith(PREFIX) and name.endswith(".tmp")) for name in beside):
        return [], []
    return steps, made


def _missing(root: Path, writes: Sequence[FileWrite]) -> list[str]:
    """The folders that new files need and that are not there, outermost first."""
    folders: dict[str, None] = {}
    for write in writes:
        parts = write.path.split("/")[:-1] if write.before is None else []
        for count in range(1, len(parts) + 1):
            folder = "/".join(parts[:count])
            if folder not in folders and stat(root, folder) is None:
                folders[folder] = None
    return list(folders)


def _remove_folders(root: Path, folders: Sequence[str]) -> None:
    """Remove folders that were made for new files, innermost first."""
    for folder in reversed(folders):
        try:
            with entry_at(root, folder) as place:
                os.rmdir(place.name, dir_fd=place.directory)
        except (ToolError, OSError):
            continue  # never made, or somebody has put something there: it stays


def _looked_at(place: Place) -> os.stat_result:
    return os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)


def _require_writable(place: Place) -> None:
    if not _looked_at(place).st_mode & 0o222 or not os.access(place.name, os.W_OK, dir_fd=place.directory):
        raise PermissionError(13, "Permission denied", place.path)


def _change(place: Place, step: _Step, write: FileWrite) -> None:
    new = None if step.new is None else Place(place.directory, step.new, place.path)
    if write.before is None:
        assert new is not None
        try:
            rename_new(new, place)
        except FileExistsError as error:
            raise Changed(f"{place.path} was made by somebody else meanwhile.") from error
        return
    try:
        same = holds(place, write.before)
    except FileNotFoundError:
        same = False
    if not same:
        raise Changed(f"{place.path} changed while it was being patched. Read it and try again.")
    assert step.old is not None
    old = Place(place.directory, step.old, place.path)
    if new is None:
        rename_new(place, old)
        return
    _keep(place, old, write.before)
    os.replace(new.name, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)


def _keep(place: Place, old: Place, data: bytes) -> None:
    """The old content under a second name: the file itself, or a copy where there are no hard links."""
    try:
        os.link(
            place.name,
            old.name,
            src_dir_fd=place.directory,
            dst_dir_fd=old.directory,
            follow_symlinks=False,
        )
    except OSError:
        with written(place, data, 0o600) as (descriptor, name):
            like(place, descriptor, _looked_at(place), None)
            os.fsync(descriptor)
            kept = Place(place.directory, name or named(place, descriptor), place.path)
        rename_new(kept, old)


def _reverse(root: Path, step: _Step) -> bool:
    """Undo one step as far as it has happened; whether a file was put back."""
    try:
        with entry_at(root, step.path) as place:
            if step.old is None:
                if (
                    step.new is None
                    or exists(Place(place.directory, step.new, place.path))
                    or not _holds(root, step)
                ):
                    return False
                remove(place, place.name)
            elif not exists(Place(place.directory, step.old, place.path)):
                return False
            elif step.new is None:
                rename_new(Place(place.directory, step.old, step.path), place)
            elif not _holds(root, step):
                return False
            else:
                os.replace(step.old, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
            sync(place)
            return True
    except (ToolError, OSError):
        return False  # its folder is gone, or somebody has put something else there, which stays


def _holds(root: Path, step: _Step) -> bool:
    """Whether the file is still what the step made of it."""
    data, _ = read_bytes(root, step.path)
    return content_hash(data) == step.after


def _forget(root: Path, step: _Step) -> None:
    """Remove what lies beside a file."""
    try:
        with entry_at(root, step.path) as place:
            for name in (step.new, step.old):
                if name is not None:
                    remove(place, name)
    except (ToolError, OSError):
        return  # the folder is gone, and they with it
