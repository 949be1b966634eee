"""Content by its name: compressed files in a folder that only their owner can read.

A name is `tools.workspace.content_hash` of the content. A file appears under its name only when it is whole,
and `Batch.commit` returns only when everything written through it survives a loss of power.
"""

import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final

import zstandard

from tools.snapshots.durable import MANY, sync, sync_all
from tools.snapshots.errors import DamagedStore, SnapshotError, UnknownSnapshot
from tools.workspace import content_hash

LEVEL: Final = 1
WHOLE: Final = 1 << 20
"""Bytes up to which a file is read in one piece."""
PIECE: Final = 1 << 20
YOUNG_S: Final = 3600.0
"""Seconds for which nothing is swept: who wrote it may not have said yet that it is needed."""
DIGEST: Final = 20

_HEX: Final = frozenset("0123456789abcdef")


def checked_name(name: str) -> str:
    """The name itself. Raises `UnknownSnapshot` for what can be no name (so that no path is made of it)."""
    if len(name) != 2 * DIGEST or not _HEX.issuperset(name):
        raise UnknownSnapshot(f"{name[:60]!r} names no content: a name is 40 hexadecimal digits.")
    return name


class Objects:
    """The folder of objects. Several processes may share it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for made in (folder, *(folder / name for name in ("objects", "new", "trees"))):
            made.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.chmod(folder, 0o700)
        self.epoch_file = folder / "epoch"
        self._shards: set[str] = set()

    def path(self, name: str) -> Path:
        """Where the object of this name lies."""
        checked_name(name)
        return self.folder / "objects" / name[:2] / name[2:]

    def has(self, name: str) -> bool:
        """Whether it is stored. An old one is made young: somebody is about to need it."""
        return _is_there(self.path(name))

    def read(self, name: str) -> bytes:
        """The content, checked against its name.

        Raises:
            UnknownSnapshot: there is none.
            DamagedStore: the file is not what was written.
        """
        try:
            packed = self.path(name).read_bytes()
        except FileNotFoundError as error:
            raise UnknownSnapshot(
                f"The snapshot store holds no content {name}: it was swept, or belongs to another store."
            ) from error
        try:
            content = zstandard.ZstdDecompressor().decompressobj().decompress(packed)
        except zstandard.ZstdError as error:
            raise _damaged(name, self.path(name)) from error
        if content_hash(content) != name:
            raise _damaged(name, self.path(name))
        return content

    def copy_to(self, name: str, descriptor: int) -> int:
        """Write the content into an open file, in pieces; returns its size. Raises as `read`."""
        digest, size = blake2b(digest_size=DIGEST), 0
        try:
            with open(self.path(name), "rb") as source:
                for piece in zstandard.ZstdDecompressor().read_to_iter(source, read_size=PIECE):
                    digest.update(piece)
                    size += len(piece)
                    _write(descriptor, piece)
        except FileNotFoundError as error:
            raise UnknownSnapshot(f"The snapshot store holds no content {name}.") from error
        except zstandard.ZstdError as error:
            raise _damaged(name, self.path(name)) from error
        if digest.hexdigest() != name:
            raise _damaged(name, self.path(name))
        return size

    def tree(self, name: str) -> bytes:
        """The root of a snapshot, checked against its name. Raises as `read`."""
        path = self.folder / "trees" / checked_name(name)
        try:
            content = path.read_bytes()
        except FileNotFoundError as error:
            raise UnknownSnapshot(
                f"There is no snapshot {name} in this store: it was swept, or belongs to another one."
            ) from error
        if content_hash(content) != name:
            raise _damaged(name, path)
        return content

    def add_tree(self, name: str, content: bytes) -> None:
        """Store the root of a snapshot, durably; everything it names must be stored."""
        path = self.folder / "trees" / name
        try:
            if _is_there(path):
                return
            temporary = self.folder / "new" / secrets.token_hex(8)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                _write(descriptor, content)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(temporary, path)
            _sync([path.parent], self.folder)
        except OSError as error:
            raise unwritable(self.folder, error) from error

    def trees(self) -> list[os.DirEntry[str]]:
        """The roots of all snapshots."""
        with os.scandir(self.folder / "trees") as found:
            return list(found)

    @contextmanager
    def shared(self) -> Iterator[int]:
        """Keep sweeps away while objects are written or relied upon; gives the epoch of the last sweep."""
        with self._locked(fcntl.LOCK_SH):
            yield self._epoch()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep everybody else away, and tell them afterwards that objects may be gone."""
        with self._locked(fcntl.LOCK_EX):
            self.epoch_file.write_bytes(str(self._epoch() + 1).encode())
            yield

    def names(self) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Every object with its directory entry."""
        with os.scandir(self.folder / "objects") as shards:
            for shard in shards:
                with os.scandir(shard.path) as found:
                    for entry in found:
                        yield shard.name + entry.name, entry

    def _epoch(self) -> int:
        try:
            return int(self.epoch_file.read_bytes() or b"0")
        except (FileNotFoundError, ValueError):
            return 0

    @contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, how)
            yield
        finally:
            os.close(descriptor)

    def shard(self, name: str) -> Path:
        shard = self.folder / "objects" / name[:2]
        if name[:2] not in self._shards:
            shard.mkdir(exist_ok=True, mode=0o700)
            self._shards.add(name[:2])
        return shard


class Batch:
    """Objects on their way into the store: written beside it, named by `commit`."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self.written = 0
        """Bytes on disk, compressed."""
        self.committed = 0
        """Of these, what a commit made durable."""
        self._new: dict[str, Path] = {}
        self._compressor = zstandard.ZstdCompressor(level=LEVEL)

    def put(self, content: bytes, name: str | None = None) -> str:
        """Keep content; returns its name."""
        name = name or content_hash(content)
        if name not in self._new and not self.objects.has(name):
            descriptor, path = self._open()
            try:
                self._write(descriptor, path, self._compressor.compress(content))
            finally:
                os.close(descriptor)
            self._new[name] = path
        return name

    def put_file(self, descriptor: int, size: int) -> tuple[str, int]:
        """Keep what can be read from a descriptor (from its start); returns name and size.

        A file that grows meanwhile is kept as far as it was read.
        """
        if size <= WHOLE:
            content = _read_whole(descriptor, size)
            return self.put(content), len(content)
        digest = blake2b(digest_size=DIGEST)
        total, (target, path) = 0, self._open()
        try:
            squeezed = self._compressor.compressobj()
            while piece := os.pread(descriptor, PIECE, total):
                digest.update(piece)
                total += len(piece)
                self._write(target, path, squeezed.compress(piece))
            self._write(target, path, squeezed.flush())
        except OSError:  # it cannot be read
            path.unlink()
            raise
        finally:
            os.close(target)
        name = digest.hexdigest()
        if name in self._new or self.objects.has(name):
            path.unlink()
        else:
            self._new[name] = path
        return name, total

    def __len__(self) -> int:
        """How many objects a commit would make durable."""
        return len(self._new)

    def commit(self) -> None:
        """Make everything put so far durable, then visible under its name.

        Raises:
            SnapshotError: the disk is full or failing; nothing of it counts as stored.
        """
        new, self._new = self._new, {}
        if not new:
            return
        try:
            _sync(list(new.values()), self.objects.folder)
            shards: set[Path] = set()
            for name, path in new.items():
                shard = self.objects.shard(name)
                os.replace(path, shard / name[2:])
                shards.add(shard)
            _sync([*shards, self.objects.folder / "objects"], self.objects.folder)
        except OSError as error:
            for path in new.values():
                with suppress(FileNotFoundError):
                    path.unlink()
            raise unwritable(self.objects.folder, error) from error
        self.committed = self.written

    def discard(self) -> None:
        """Forget what was put and not committed."""
        new, self._new = self._new, {}
        for path in new.values():
            with suppress(FileNotFoundError):
                path.unlink()

    def _write(self, descriptor: int, path: Path, packed: bytes) -> None:
        try:
            _write(descriptor, packed)
        except OSError as error:
            with suppress(FileNotFoundError):
                path.unlink()
            raise unwritable(self.objects.folder, error) from error
        self.written += len(packed)

    def _open(self) -> tuple[int, Path]:
        path = self.objects.folder / "new" / secrets.token_hex(8)
        try:
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), path
        except OSError as error:
            raise unwritable(self.objects.folder, error) from error


@contextmanager
def batch(objects: Objects) -> Iterator[Batch]:
    """A batch that leaves nothing behind where it is not committed."""
    with ExitStack() as stack:
        made = Batch(objects)
        stack.callback(made.discard)
        yield made


def unwritable(folder: Path, error: OSError) -> SnapshotError:
    """What a full or failing disk means for the store."""
    what = os.strerror(error.errno) if error.errno else str(error)
    return SnapshotError(f"The snapshot store in {folder} cannot be used: {what}.", errno=error.errno)


def _is_there(path: Path) -> bool:
    """Whether a file is stored; an old one is made young, for somebody is about to rely on it."""
    try:
        found = os.stat(path)
        if time.time() - found.st_mtime > YOUNG_S / 2:
            os.utime(path)
    except FileNotFoundError:
        return False
    return True


def _damaged(name: str, path: Path) -> DamagedStore:
    return DamagedStore(f"The snapshot store is damaged: {path} is not the content {name}. Remove that file.")


def _read_whole(descriptor: int, size: int) -> bytes:
    content = os.pread(descriptor, size + 1, 0)
    if len(content) == size:
        return content
    pieces = [content]
    at = len(content)
    while piece := os.pread(descriptor, PIECE, at):
        pieces.append(piece)
        at += len(piece)
    return b"".join(pieces)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _sync(paths: list[Path], folder: Path) -> None:
    """Bring files and folders of the store to the disk."""
    with ExitStack() as stack:
        within = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, within)
        descriptors: list[int] = []
        if len(paths) < MANY:
            for path in paths:
                descriptors.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
                stack.callback(os.close, descriptors[-1])
            sync(descriptors)
        elif not sync_all(within):
            for path in paths:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
