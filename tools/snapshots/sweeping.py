"""Deleting what nobody needs any more."""

import os
import time
from collections.abc import Iterable
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
        for tree in sorted(wanted):
            kept |= _closure(objects, tree, damaged) & found.keys()
        size = sum(found[name].size for name in kept) + sum(trees[name].size for name in wanted)
        dropped: list[str] = []
        newest = sorted((named & trees.keys()) - wanted, key=lambda name: -trees[name].modified)
        for tree in newest:
            more = (_closure(objects, tree, damaged) & found.keys()) - kept
            extra = sum(found[name].size for name in more) + trees[tree].size
            if budget is not None and size + extra > budget:
                dropped.append(tree)
                continue
            wanted.add(tree)
            kept |= more
            size += extra
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


def _closure(objects: Objects, tree: str, damaged: list[str]) -> set[str]:
    """Every object that a snapshot is made of, as far as it can be read."""
    reached: set[str] = set()
    try:
        for chunk in manifest.chunks_of(objects, tree):
            reached.add(chunk)
            reached.update(entry.name for entry in manifest.parse(objects.read(chunk), chunk) if entry.stored)
    except (DamagedStore, UnknownSnapshot):
        damaged.append(tree)
    return reached


def _forget_strays(objects: Objects, before: float) -> None:
    """What processes that were killed left behind on the way into the store."""
    for file in (*(objects.folder / "new").iterdir(), *(objects.folder / "journal").glob("*.new")):
        with suppress(FileNotFoundError):
            if file.stat().st_mtime < before:
                file.unlink()
