"""Content-addressed blobs: stored once, compressed where that helps, counted by reference."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import zstandard
from sqlalchemy import Column, ColumnElement, Connection, bindparam, delete, select, update

from agent.events import now
from server.store.backend import Backend
from server.store.errors import MissingBlob, UnknownBlob
from server.store.tables import blobs
from tools.workspace import content_hash

LIMIT_BYTES: Final = 512 << 20
"""The largest content that is stored in one piece."""
LEVEL: Final = 3
SMALL: Final = 128
"""Bytes below which compression cannot pay for its frame."""
CHUNK: Final = 500
"""Values in one IN list."""


@dataclass(frozen=True, slots=True)
class Blob:
    """Content ready to be stored. `size` is in bytes before compression; `parent` is set for prompt nodes."""

    hash: str
    codec: str
    size: int
    data: bytes
    parent: str | None = None


def pack(hash: str, content: bytes, parent: str | None = None) -> Blob:
    """Compress, if it saves at least a tenth. Takes milliseconds per megabyte."""
    if len(content) > LIMIT_BYTES:
        raise MissingBlob(
            f"content of {len(content):,} bytes is too large to be stored: "
            f"at most {LIMIT_BYTES:,} in one piece"
        )
    if len(content) >= SMALL:
        squeezed = zstandard.ZstdCompressor(level=LEVEL).compress(content)
        if len(squeezed) < len(content) * 0.9:
            return Blob(hash, "zstd", len(content), squeezed, parent)
    return Blob(hash, "raw", len(content), content, parent)


def pack_all(contents: Iterable[bytes]) -> list[Blob]:
    """Contents ready to be stored, in the order given."""
    return [pack(content_hash(content), content) for content in contents]


def unpack(blob: Blob) -> bytes:
    """The content of a stored blob. Takes a millisecond per megabyte."""
    match blob.codec:
        case "raw":
            return blob.data
        case "zstd":
            return zstandard.ZstdDecompressor().decompress(blob.data, max_output_size=blob.size)
        case other:
            raise MissingBlob(f"a blob is stored as {other!r}, which a newer Etude wrote: update Etude")


def among(column: "Column[Any]", values: Iterable[str]) -> Iterator[ColumnElement[bool]]:
    """Conditions that together select the rows whose column is one of the values, in ascending order.

    Lists are padded to powers of two so that the database sees few different statements.
    """
    ordered = sorted(values)
    for start in range(0, len(ordered), CHUNK):
        chunk = ordered[start : start + CHUNK]
        chunk += chunk[-1:] * ((1 << (len(chunk) - 1).bit_length()) - len(chunk))
        yield column.in_(chunk)


def lock_stored(connection: Connection, hashes: Iterable[str]) -> set[str]:
    """Those of the hashes that are stored; their rows stay until the transaction ends."""
    found: set[str] = set()
    for condition in among(blobs.c.hash, hashes):
        query = select(blobs.c.hash).where(condition).order_by(blobs.c.hash).with_for_update()
        found.update(connection.execute(query).scalars())
    return found


def add(
    backend: Backend, connection: Connection, fresh: Mapping[str, Blob], references: Mapping[str, int]
) -> None:
    """Store new blobs and count new references, to new blobs and to stored ones."""
    if fresh:
        statement = backend.insert(blobs)
        statement = statement.on_conflict_do_update(
            index_elements=[blobs.c.hash], set_={"refs": blobs.c.refs + statement.excluded.refs}
        )
        created = now()
        rows = [
            {
                "hash": blob.hash,
                "codec": blob.codec,
                "size": blob.size,
                "refs": references.get(blob.hash, 0),
                "parent": blob.parent,
                "created": created,
                "data": blob.data,
            }
            for blob in sorted(fresh.values(), key=lambda blob: blob.hash)
        ]
        connection.execute(statement, rows)
    _count(connection, {hash: n for hash, n in references.items() if hash not in fresh})


def release(connection: Connection, references: Mapping[str, int]) -> int:
    """Take references away and delete what nobody names any more; returns how many blobs went."""
    known: dict[str, tuple[int, str | None]] = {}

    def learn(hashes: Iterable[str]) -> None:
        for condition in among(blobs.c.hash, [hash for hash in hashes if hash not in known]):
            query = select(blobs.c.hash, blobs.c.refs, blobs.c.parent).where(condition)
            for hash, refs, parent in connection.execute(query.order_by(blobs.c.hash).with_for_update()):
                known[hash] = refs, parent

    taken: Counter[str] = Counter()
    waiting: Counter[str] = Counter(references)
    gone: set[str] = set()
    while waiting:
        learn(waiting)
        taken.update(waiting)
        parents: Counter[str] = Counter()
        for hash in waiting:
            refs, parent = known.get(hash, (0, None))
            if hash in known and hash not in gone and refs <= taken[hash]:
                gone.add(hash)
                if parent is not None:
                    parents[parent] += 1
        waiting = parents
    _count(connection, {hash: -n for hash, n in taken.items() if hash not in gone})
    for condition in among(blobs.c.hash, gone):
        connection.execute(delete(blobs).where(condition))
    return len(gone)


def sweep(connection: Connection, older_us: int) -> int:
    """Delete blobs without references that are older than this; returns how many went."""
    old = select(blobs.c.hash).where(blobs.c.refs == 0, blobs.c.created < now() - older_us)
    return release(connection, dict.fromkeys(connection.execute(old).scalars(), 0))


def read(connection: Connection, hashes: Iterable[str]) -> dict[str, Blob]:
    """Those of the hashes that are stored, still packed."""
    found: dict[str, Blob] = {}
    for condition in among(blobs.c.hash, set(hashes)):
        query = select(blobs.c.hash, blobs.c.codec, blobs.c.size, blobs.c.data, blobs.c.parent)
        for row in connection.execute(query.where(condition)):
            found[row.hash] = Blob(row.hash, row.codec, row.size, row.data, row.parent)
    return found


def read_chain(connection: Connection, hash: str) -> dict[str, Blob]:
    """A blob, and for the node of a prompt those up to its root, still packed. Raises `UnknownBlob`."""
    path = select(blobs.c.hash, blobs.c.parent).where(blobs.c.hash == hash).cte("path", recursive=True)
    path = path.union_all(select(blobs.c.hash, blobs.c.parent).join(path, blobs.c.hash == path.c.parent))
    hashes = connection.execute(select(path.c.hash)).scalars().all()
    if not hashes:
        raise UnknownBlob(f"there is no blob {hash}")
    return read(connection, hashes)


def _count(connection: Connection, references: Mapping[str, int]) -> None:
    if references:
        statement = (
            update(blobs)
            .where(blobs.c.hash == bindparam("b_hash"))
            .values(refs=blobs.c.refs + bindparam("b_refs"))
        )
        connection.execute(
            statement, [{"b_hash": hash, "b_refs": n} for hash, n in sorted(references.items())]
        )
