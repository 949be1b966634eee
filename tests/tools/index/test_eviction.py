"""Indexes that nobody will ask again go; those in use stay."""

import os
import time
from pathlib import Path

from tests.tools.index.conftest import Indexed
from tests.tools.index.test_index import PATIENT, names
from tools.index import Index, evict
from tools.index.claim import NOTE, Claim
from tools.index.schema import database_of

DAY = 86400


def kept(cache: Path, root: Path, size: int, days: float, note: bool = True) -> Path:
    """An index of so many bytes of a workspace, last used so many days ago."""
    folder = database_of(root, cache).parent
    Claim(folder, root).release()
    (folder / "index-1.1.db").write_bytes(b"x" * size)
    if not note:
        (folder / NOTE).unlink()
    at = time.time() - days * DAY
    os.utime(folder / NOTE if note else folder, (at, at))
    return folder


def test_what_is_gone_or_long_unused_goes(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert evict(cache) == 0
    roots = [tmp_path / name for name in ("used", "unused", "old", "gone")]
    for root in roots[:3]:
        root.mkdir()
    used, unused = kept(cache, roots[0], 5000, 29), kept(cache, roots[1], 5000, 31)
    old, gone = kept(cache, roots[2], 5000, 31, note=False), kept(cache, roots[3], 5000, 0)
    (cache / "index" / "a file").write_text("not ours")
    assert evict(cache) >= 15_000
    assert used.exists() and not (unused.exists() or old.exists() or gone.exists())
    assert (cache / "index" / "a file").exists()
    assert evict(cache, unused_s=28 * DAY) >= 5000 and not used.exists()


def test_the_longest_unused_go_until_the_rest_fits(tmp_path: Path) -> None:
    folders: list[Path] = []
    for days in (3, 1, 4, 2):
        (tmp_path / str(days)).mkdir()
        folders.append(kept(tmp_path / "cache", tmp_path / str(days), 100_000, days))
    evict(tmp_path / "cache", budget=250_000)
    assert [folder.exists() for folder in folders] == [False, True, False, True]


def test_a_link_leads_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "cache" / "index").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious").write_text("x" * 5000)
    (tmp_path / "cache" / "index" / "link").symlink_to(tmp_path / "other")
    kept(tmp_path / "cache", tmp_path, 10, 0)
    inside = database_of(tmp_path, tmp_path / "cache").parent
    (inside / "link").symlink_to(tmp_path / "other")
    evict(tmp_path / "cache", unused_s=-1, budget=0)
    assert not inside.exists() and (tmp_path / "other" / "precious").exists()


async def test_an_index_in_use_stays_and_one_let_go_does_not(
    root: Path, tmp_path: Path, indexed: Indexed
) -> None:
    (root / "a.py").write_text("def one(): pass\n")
    index = indexed(root)
    await index.ready(PATIENT)
    assert (index.database.parent / NOTE).read_text() == str(root)
    assert evict(tmp_path / "cache", unused_s=-1, budget=0) == 0
    assert names(index) == {"one"}
    await index.close()
    assert evict(tmp_path / "cache", unused_s=-1, budget=0) > 0
    assert not index.database.parent.exists()
    again: Index = indexed(root)
    await again.ready(PATIENT)
    assert names(again) == {"one"}
