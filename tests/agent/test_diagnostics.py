"""Diagnostics within a turn: against what the turn began from."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.turns import call, data, opened, turn
from tools.snapshots import SnapshotStore


async def test_what_a_turn_broke_is_told_from_what_was_broken(
    root: Path, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    (root / "a.py").write_text("one = undefined\n")
    model = script(
        [
            {"calls": [call("read", path="a.py")]},
            {"calls": [call("edit", path="a.py", edits=[{"old": "one = ", "new": "two = missing\none = "}])]},
            {"calls": [call("diagnostics")]},
            {"text": "done"},
        ]
    )
    async with opened(root, model) as session:
        session.workspace.snapshots = SnapshotStore(root.parent / "snapshots")
        events = await turn(session)
    result = data(events, "tool.result")[-1]
    runs = {run["checker"]: run for run in result["data"]["runs"]}
    assert (runs["ruff"]["state"], runs["ruff"]["found"], runs["ruff"]["new"]) == ("fresh", 2, 1)
    assert "a.py:1:7: error F821 Undefined name `missing` [new]" in result["text"]
    assert runs["pyright"]["new"] is None, "nobody asked it before the turn"
