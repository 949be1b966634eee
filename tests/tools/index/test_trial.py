"""Trying out the index: what works here, and what does not."""

import tempfile
from pathlib import Path

import pytest

from tools.index import indexer
from tools.index.languages import EXTENSIONS
from tools.index.trial import trial


async def test_all_languages_are_parsed_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tried = await trial()
    assert (tried.problem, tried.failing) == ("", ())
    assert set(tried.languages) == set(EXTENSIONS)
    assert list(tmp_path.iterdir()) == []


async def test_a_process_that_does_not_start_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.py").write_text("import nothing_of_this_name\n")
    monkeypatch.setattr(indexer, "_CHILD", tmp_path / "broken.py")
    tried = await trial()
    assert tried.languages == () and "died too often" in tried.problem
    assert set(tried.failing) == set(EXTENSIONS)
