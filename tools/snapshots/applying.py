"""Bringing paths of a workspace from the state they are in to another, so that a crash loses nothing.

What is to be done is written down first (`journal`), contents are made beside their places, and each path is
then changed by one rename. A path that is no longer as expected is left alone: somebody has changed it.
"""

import errno
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tools.snapshots.beneath import Beneath
from tools.snapshots.durable import MANY, sync, sync_all
from tools.snapshots.errors import SnapshotError
from tools.snapshots.manifest import Entry
from tools.snapshots.objects import Objects

CHANGED = "it was changed meanwhile"
NOT_EMPTY = "there are files in it that no snapshot knows"


@dataclass(frozen=True, slots=True)
class Step:
    """One path: what is there now, and what shall be; None = nothing."""

    path: bytes
    now: Entry | None
    wanted: Entry | None


@dataclass(slots=True)
class Applied:
    """`changed` are the paths that are now as wanted, `kept` those that were left alone, with the reason."""

    changed: list[bytes] = field(default_factory=list)
    kept: list[tuple[bytes, str]] = field(default_factory=list)


def apply(
    objects: Objects,
    root: Path,
    steps: Sequence[Step],
    temporary: bytes,
    progress: Callable[[str], None] = lambda stage: None,
    *,
    again: bool = False,
) -> Applied:
    """Change these paths. Doing it `again` after it was broken off finishes it.

    `temporary` begins the names of files on their way; `progress` is told of each stage (tests stop there).

    Raises:
        SnapshotError: content is missing, or the disk is full; paths may have been changed by then, and what
            was there is in the store.
    """
    with Beneath(root) as workspace:
        work = _Work(objects, workspace, temporary, progress, again)
        return work.run(sorted(steps, key=lambda step: step.path))


class _Work:
    def __init__(
        self,
        objects: Objects,
        workspace: Beneath,
        temporary: bytes,
        progress: Callable[[str], None],
        again: bool,
    ) -> None:
        self.objects, self.workspace, self.temporary = objects, workspace, temporary
        self.progress, self.again = progress, again
        self.result = Applied()
        self.loosened: dict[bytes, int] = {}
        """Folders that had to be made writable, and their modes."""
        self.gone: set[bytes] = set()
        """Paths from which something was removed."""
        self.touched: set[bytes] = set()
        """Folders whose names changed."""

    def run(self, steps: Sequence[Step]) -> Applied:
        numbered = {step.path: number for number, step in enumerate(steps)}
        for step in steps:
            self._clear(step, numbered[step.path])
        todo = [step for step in steps if self._expected(step)]
        self.progress("checked")
        leaving = [step for step in todo if _leaves(step)]
        stuck = {step.path for step in self._remove(leaving)}
        self.progress("removed")
        coming = [step for step in todo if step.wanted is not None and step.path not in stuck]
        folders = [step for step in coming if step.wanted is not None and step.wanted.type == "directory"]
        for step in folders:
            if not self._is_folder(step.path):
                self._try(step, lambda step=step: self._make(step.path))
        self.progress("folders")
        self._write([step for step in coming if step not in folders], numbered)
        self._modes(folders)
        self._settle()
        kept = {path for path, _ in self.result.kept}
        self.result.changed = [step.path for step in steps if step.path not in kept]
        return self.result

    # ---- what is there

    def _clear(self, step: Step, number: int) -> None:
        """Remove what an earlier try left beside a path."""
        try:
            directory, _ = self.workspace.parent(step.path)
            os.unlink(self._temporary(number), dir_fd=directory)
        except OSError:  # there is nothing, as a rule
            return

    def _expected(self, step: Step) -> bool:
        """Whether there is something to do, and the path is as expected."""
        try:
            found = self.workspace.state(step.path)
        except OSError as error:
            self._keep(step, error)
            return False
        if found == step.wanted:
            return False
        if found == step.now or _folders(found, step.now) or _folders(found, step.wanted):
            return True
        if found is None and ((self.again and _leaves(step)) or step.path in self.gone):
            return True  # what was there has made room; else somebody has deleted it since
        self.result.kept.append((step.path, CHANGED))
        return False

    def _is_folder(self, path: bytes) -> bool:
        try:
            return _folders(self.workspace.state(path), Entry(path, "directory", 0))
        except OSError:
            return False

    # ---- what is done

    def _remove(self, leaving: list[Step]) -> list[Step]:
        """Files, then folders from the deepest on. Those that could not be removed."""
        files = [step for step in leaving if step.now is not None and step.now.type != "directory"]
        stuck = [step for step in files if not self._try(step, lambda step=step: self._unlink(step.path))]
        for step in reversed([step for step in leaving if step not in files]):
            if not self._try(step, lambda step=step: self._rmdir(step.path)):
                stuck.append(step)
        return stuck

    def _write(self, steps: list[Step], numbered: dict[bytes, int]) -> None:
        """Files, links and FIFOs: all made and on the disk before the first takes its place."""
        made: list[tuple[Step, bytes]] = []
        descriptors: list[int] = []
        try:
            for step in steps:
                if _only_mode(step):
                    self._try(step, lambda step=step: self._chmod(step))
                    continue
                name = self._temporary(numbered[step.path])
                if self._try(step, lambda step=step, name=name: self._prepare(step, name, descriptors)):
                    made.append((step, name))
                if len(descriptors) >= MANY:
                    self._sync(descriptors)
            self._sync(descriptors)
        except SnapshotError:
            for step in steps:
                self._clear(step, numbered[step.path])
            raise
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self.progress("written")
        for step, name in made:
            if self._expected(step):
                self._try(step, lambda step=step, name=name: self._rename(step.path, name))
            self._clear(step, numbered[step.path])
            self.progress("renamed")

    def _sync(self, descriptors: list[int]) -> None:
        if len(descriptors) < MANY or not sync_all(self.workspace.root):
            sync(descriptors)
        while descriptors:
            os.close(descriptors.pop())

    def _modes(self, folders: list[Step]) -> None:
        for step in reversed(folders):
            assert step.wanted is not None
            self.loosened.pop(step.path, None)
            mode = step.wanted.mode
            self._try(step, lambda step=step, mode=mode: self.workspace.set_mode(step.path, mode))
        for path, mode in sorted(self.loosened.items(), reverse=True):
            with suppress(FileNotFoundError):
                self.workspace.set_mode(path, mode)

    def _settle(self) -> None:
        """The folders whose names changed, on the disk."""
        opened: list[int] = []
        for path in self.touched:
            try:
                opened.append(os.dup(self.workspace.folder(path)))
            except OSError:  # it was removed in the meantime
                continue
        try:
            if len(opened) < MANY or not sync_all(self.workspace.root):
                sync(opened)
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def _unlink(self, path: bytes) -> None:
        self._loosen(path)
        self.workspace.remove(path)
        self.gone.add(path)

    def _rmdir(self, path: bytes) -> None:
        self._loosen(path)
        self.workspace.remove_folder(path)
        self.gone.add(path)

    def _make(self, path: bytes) -> None:
        self._loosen(path)
        self.workspace.make_folder(path)

    def _prepare(self, step: Step, name: bytes, descriptors: list[int]) -> None:
        assert step.wanted is not None
        self._loosen(step.path)
        descriptor = self.workspace.prepare(self.objects, step.wanted, name)
        if descriptor is not None:
            descriptors.append(descriptor)

    def _chmod(self, step: Step) -> None:
        assert step.wanted is not None
        self.workspace.set_mode(step.path, step.wanted.mode)

    def _rename(self, path: bytes, name: bytes) -> None:
        self.workspace.rename(path, name)

    def _loosen(self, path: bytes) -> None:
        """Make the folder above a path writable for its owner, for as long as this takes."""
        above = path.rpartition(b"/")[0]
        self.touched.add(above)
        folder = self.workspace.folder(above)
        found = os.fstat(folder)
        bits = stat.S_IMODE(found.st_mode)
        if bits & 0o300 != 0o300 and found.st_uid == os.geteuid() != 0:
            os.fchmod(folder, bits | 0o700)
            self.loosened.setdefault(above, bits)

    def _try(self, step: Step, action: Callable[[], object]) -> bool:
        """Whether it was done; what the system refuses for one path does not stop the others."""
        try:
            action()
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise SnapshotError(
                    f"There is no room left in the workspace ({os.strerror(error.errno)}). "
                    "Some paths were not changed; make room and do it again.",
                    errno=error.errno,
                ) from error
            self._keep(step, error)
            return False
        return True

    def _keep(self, step: Step, error: OSError) -> None:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            why = NOT_EMPTY
        else:
            why = os.strerror(error.errno) if error.errno else str(error)
        self.result.kept.append((step.path, why))

    def _temporary(self, number: int) -> bytes:
        return b"%s-%d.tmp" % (self.temporary, number)


def _leaves(step: Step) -> bool:
    """Whether what is there now has to go before anything can come."""
    if step.now is None:
        return False
    return step.wanted is None or (step.now.type == "directory") != (step.wanted.type == "directory")


def _only_mode(step: Step) -> bool:
    now, wanted = step.now, step.wanted
    return (
        now is not None
        and wanted is not None
        and now.type == wanted.type != "link"
        and now.name == wanted.name
    )


def _folders(one: Entry | None, other: Entry | None) -> bool:
    """Two folders: their modes may differ, a crash may have left one writable."""
    return one is not None and other is not None and one.type == other.type == "directory"
