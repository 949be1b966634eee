"""One folder per rule of `apply_patch`: input, patch, and what must come out, byte for byte."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.calling import call, saw, tree, workspace
from tools.apply_patch import ApplyPatch
from tools.errors import ToolError

SCENARIOS = Path(__file__).parent / "apply_patch"


def _scenarios() -> list[Any]:
    found = []
    for folder in sorted(SCENARIOS.iterdir()):
        if folder.is_dir():
            facts = json.loads((folder / "facts.json").read_text("utf-8"))
            marks = [pytest.mark.case(case) for case in facts.get("cases", ())]
            found.append(pytest.param(folder, facts, id=folder.name, marks=marks))
    return found


@pytest.mark.parametrize(("folder", "facts"), _scenarios())
async def test_scenario(folder: Path, facts: dict[str, Any], tmp_path: Path) -> None:
    root = tmp_path / "work"
    shutil.copytree(folder / "input", root)
    place = workspace(root)
    for path in tree(root):
        (root / path).chmod(0o644)
        saw(place, path)
    before = tree(root)
    patch = (folder / "patch").read_bytes().decode("utf-8")
    if "error" in facts:
        with pytest.raises(ToolError) as caught:
            await call(ApplyPatch(), place, patch=patch)
        assert type(caught.value).__name__ == facts["error"], caught.value.message
        assert facts["says"] in caught.value.message
        assert caught.value.error_class == "invalid_arguments"
        assert tree(root) == before
    else:
        result = await call(ApplyPatch(), place, patch=patch)
        for path, tiers in facts.get("tiers", {}).items():
            assert result.data["tiers"][path] == tiers
        for path, mode in facts.get("modes", {}).items():
            assert f"{(root / path).stat().st_mode & 0o777:o}" == mode
        after = tree(root)
        for change in result.changes:
            assert change.before == before.get(change.path)
            assert change.after == after.get(change.path)
        changed = {path for path in before | after if before.get(path) != after.get(path)}
        assert changed <= {change.path for change in result.changes}
        for path, data in after.items():
            saw(place, path)
            assert path in before or path in result.seen, data
    assert tree(root) == tree(folder / "expected")
    assert [item.name for item in root.rglob(".etude-*")] == []
