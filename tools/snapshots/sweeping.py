"""Deleting what nobody needs any more."""

import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from tools.snapshots import manifest
from tools.snapshots.errors import DamagedStore, UnknownSnapshot
from tools.snapshots.journal import pending
from tools.snapshots.objects import YOUNG_S, Objects
from tools.snapshots.references import held


@dataclass(frozen=True, slots=True)
class Swept:
    """`removed` files and their `freed` bytes on disk; `left` bytes remain. `dropped` are snapshots that were
    referred to and did not fit the budget, `damaged` those that are kept and cannot be read."""

    removed: int
    freed: int
    left: int
    dropped: tuple[str, ...]
    damaged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Object:
    path: str
    size: int
    modified: float


def sweep(
    objects: Objects, keep: Iterable[str] = (), budget: int | None = None, young_s: float = YOUNG_S
) -> Swept:
    """Delete what neither `keep`, nor an owner, nor an unfinished change refers to, and is not young.

    With a `budget` (bytes on disk) referred-to snapshots go too, oldest first, until the rest fits; contents
    that owners name themselves (edits), those of `keep`, and what is young always stay.
    """
    with objects.alone():
        now = time.time()
        found = {name: _Object(entry.path, *_facts(entry)) for name, entry in objects.names()}
        trees = {entry.name: _Object(entry.path, *_facts(entry)) for entry in objects.trees()}
        named = held(objects)
        wanted = {
            *keep,
            *(name for name, one in trees.items() if now - one.modified < young_s),
        } & trees.keys()
        kept = (named | pending(objects)) & found.keys()
        kept |= {name for name, one in found.items() if now - one.modified < young_s}
        damaged: list[str] = []
        whole: set[str] = set()
        for tree in sorted(wanted):
            kept |= _needed(objects, tree, found, kept, whole, damaged, None) or set()
        size = sum(found[name].size for name in kept) + sum(trees[name].size for name in wanted)
        dropped: list[str] = []
        newest = sorted((named & trees.keys()) - wanted, key=lambda name: -trees[name].modified)
        for tree in newest:
            room = None if budget is None else budget - size - trees[tree].size
            more = _needed(objects, tree, found, kept, whole, damaged, room)
            if more is None:
                dropped.append(tree)
                continue
            wanted.add(tree)
            kept |= more
            size += sum(found[name].size for name in more) + trees[tree].size
        # Roots first: if this is broken off, no snapshot is left that lacks a part.
        gone = [trees[name] for name in trees.keys() - wanted]
        gone += [found[name] for name in found.keys() - kept]
        for one in gone:
            with suppress(FileNotFoundError):
                os.unlink(one.path)
        _forget_strays(objects, now - young_s)
    freed = sum(one.size for one in gone)
    return Swept(len(gone), freed, size, tuple(dropped), tuple(damaged))


def _facts(entry: os.DirEntry[str]) -> tuple[int, float]:
    status = entry.stat(follow_symlinks=False)
    return status.st_size, status.st_mtime


def _needed(
    objects: Objects,
    tree: str,
    found: Mapping[str, _Object],
    kept: set[str],
    whole: set[str],
    damaged: list[str],
    room: int | None,
) -> set[str] | None:
    """What a snapshot is made of, as far as it can be read and is not `kept` yet; None where that takes more
    than `room`. `whole` are chunks all of whose contents are kept: snapshots share nearly all of theirs.
    """
    more: set[str] = set()
    read: set[str] = set()
    size = 0
    try:
        for chunk in manifest.chunks_of(objects, tree):
            if chunk in whole:
                continue
            names = {entry.name for entry in manifest.parse(objects.read(chunk), chunk) if entry.stored}
            new = ({chunk} | names) & found.keys() - kept - more
            more |= new
            size += sum(found[name].size for name in new)
            if room is not None and size > room:
                return None
            read.add(chunk)
    except (DamagedStore, UnknownSnapshot):
        damaged.append(tree)
    if room is not None and size > room:
        return None
    whole |= read
    return more


def _forget_strays(objects: Objects, before: float) -> None:
    """What processes that were killed left behind on the way into the store."""
    for file in (*(objects.folder / "new").iterdir(), *(objects.folder / "journal").glob("*.new")):
        with suppress(FileNotFoundError):
            if file.stat().st_mtime < before:
                file.unlink()
