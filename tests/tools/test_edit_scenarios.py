"""One folder per rule of `edit`: input, edits, and what must come out, byte for byte."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.calling import call, saw, tree, workspace
from tools.edit import Edit
from tools.errors import ToolError

SCENARIOS = Path(__file__).parent / "edit" / "scenarios"


def _scenarios() -> list[Any]:
    found = []
    for folder in sorted(SCENARIOS.iterdir()):
        if folder.is_dir():
            facts = json.loads((folder / "edits.json").read_text("utf-8"))
            marks = [pytest.mark.case(case) for case in facts["cases"]]
            found.append(pytest.param(folder, facts, id=folder.name, marks=marks))
    return found


@pytest.mark.parametrize(("folder", "facts"), _scenarios())
async def test_scenario(folder: Path, facts: dict[str, Any], tmp_path: Path) -> None:
    root = tmp_path / "work"
    shutil.copytree(folder / "input", root)
    place = workspace(root)
    path = facts["path"]
    if (root / path).exists():
        saw(place, path)
    if "error" in facts:
        with pytest.raises(ToolError) as caught:
            await call(Edit(), place, path=path, edits=facts["edits"])
        assert type(caught.value).__name__ == facts["error"]
        assert facts.get("says", "") in caught.value.message
        assert caught.value.error_class == "invalid_arguments"
    else:
        result = await call(Edit(), place, path=path, edits=facts["edits"])
        assert result.data["tiers"] == facts.get("tiers", ["exact"] * len(facts["edits"]))
        for tier in set(result.data["tiers"]) - {"exact"}:
            assert tier in result.text
        (change,) = result.changes
        assert change.after == (root / path).read_bytes()
        assert place.seen == result.seen
    assert tree(root) == tree(folder / "expected")
    assert [item.name for item in root.rglob("*.tmp")] == []
