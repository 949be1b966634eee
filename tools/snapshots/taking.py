"""Taking a snapshot: look, store what is new, name the state."""

import os
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tools.snapshots import manifest, stat_cache
from tools.snapshots.errors import SnapshotError
from tools.snapshots.git_state import git_state
from tools.snapshots.objects import Objects, batch
from tools.snapshots.stat_cache import Seen
from tools.snapshots.walk import Limits, Walk
from tools.workspace import content_hash

SAVE_AFTER: Final = 32
"""Files read anew since the cache was last written, from which on it is written again."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Paths that a snapshot does not cover: why, how many, and the first of them."""

    reason: manifest.Reason
    count: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a workspace. `tree` names it: equal for equal states.

    `files` and `bytes` are those covered. `took_ms` is wall time, `cpu_ms` the time a processor worked.
    `git` is what the top-level repository's HEAD said; it is no part of the state that a restore brings back.
    """

    tree: str
    files: int
    bytes: int
    left_out: tuple[LeftOut, ...]
    took_ms: float
    cpu_ms: float
    read: int = 0
    written: int = 0
    git: dict[str, Any] | None = None

    @property
    def partial(self) -> bool:
        """Whether there was not time or room for everything; such a state is never restored whole."""
        return any(one.reason == "budget" for one in self.left_out)


@dataclass(slots=True)
class Known:
    """What is known of one workspace between its snapshots. One thread at a time: hold `lock`."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    loaded: bool = False
    epoch: int = 0
    files: dict[str, Seen] = field(default_factory=dict)
    chunks: set[str] = field(default_factory=set)
    unsaved: int = 0
    order: list[str] = field(default_factory=list)
    """The paths of the last snapshot, sorted."""


def take(objects: Objects, root: Path, known: Known, limits: Limits) -> Snapshot:
    """The present state of a folder, stored.

    Raises:
        SnapshotError: the folder cannot be read or the store not be written.
    """
    began, worked = time.monotonic(), time.thread_time()
    cache = objects.folder / "cache" / content_hash(os.fsencode(root))
    with known.lock, objects.shared() as epoch, batch(objects) as new:
        _recall(objects, cache, known, epoch)
        with opened(root) as folder:
            try:
                found = Walk(new, known.files, limits).look(folder)
            except OSError as error:
                raise unreadable(root, error) from error
            git = git_state(folder)
        lines = found.lines
        if len(known.order) != len(lines) or not all(map(lines.__contains__, known.order)):
            known.order = sorted(lines)
        chunks = manifest.chunked(stat_cache.line_of(lines[path]) for path in known.order)
        covered = len(lines) - found.left_out.total()
        tree = manifest.write(new, chunks, known.chunks, covered, bool(found.left_out["budget"]))
        # With the names that are held already, those of this look can go.
        known.files = {path: lines[path] for path in known.order}
        known.unsaved += found.read
        if known.unsaved >= SAVE_AFTER:
            stat_cache.save(cache, epoch, known.files)
            known.unsaved = 0
    return Snapshot(
        tree=tree,
        files=found.files,
        bytes=found.bytes,
        left_out=tuple(
            LeftOut(reason, count, tuple(found.examples[reason]))
            for reason, count in sorted(Counter(found.left_out).items())
        ),
        took_ms=(time.monotonic() - began) * 1000,
        cpu_ms=(time.thread_time() - worked) * 1000,
        read=found.read,
        written=new.written,
        git=git,
    )


class opened:
    """A workspace folder, open; not through a link that somebody put in its place."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __enter__(self) -> int:
        try:
            self.descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise unreadable(self.root, error) from error
        return self.descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)


def unreadable(root: Path, error: OSError) -> SnapshotError:
    """What a folder that cannot be opened means."""
    what = os.strerror(error.errno) if error.errno else str(error)
    return SnapshotError(f"The workspace folder {root} cannot be read: {what}.", errno=error.errno)


def _recall(objects: Objects, cache: Path, known: Known, epoch: int) -> None:
    """Bring to mind what is known; what relied on content that was swept since is forgotten."""
    if not known.loaded:
        known.epoch, known.files = stat_cache.load(cache)
        known.loaded = True
    if known.epoch != epoch:
        known.chunks.clear()
        if known.files:
            stored = {"-", *(name for name, _ in objects.names())}  # a folder has no content
            known.files = {
                path: one for path, one in known.files.items() if stat_cache.content_of(one) in stored
            }
        known.epoch = epoch
