"""Files that only this user may read."""

import errno
import os
from pathlib import Path

import pytest

from server.private import write_private


def test_it_is_private_whole_and_alone(tmp_path: Path) -> None:
    path = tmp_path / "data" / "token"
    write_private(path, b"one")
    write_private(path, b"two")
    assert path.read_bytes() == b"two" and path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert os.listdir(path.parent) == ["token"]


def test_without_replace_the_first_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "key"
    write_private(path, b"first", replace=False)
    write_private(path, b"second", replace=False)
    assert path.read_bytes() == b"first" and os.listdir(tmp_path) == ["key"]


def test_what_cannot_be_written_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tokens"
    write_private(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_private(path, b"new")
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["tokens"]
