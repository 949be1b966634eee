"""`AGENTS.md`: what reaches the model, whatever lies there."""

import os
from pathlib import Path

import pytest

from agent.instructions import LIMIT, load
from tools.sandbox.policy import SandboxPolicy
from tools.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path, SandboxPolicy())


@pytest.mark.parametrize("size", [LIMIT + 10, 4 * LIMIT + 1, 1 << 30], ids=["over", "far over", "a gigabyte"])
def test_a_long_file_is_cut_and_says_so(workspace: Workspace, size: int) -> None:
    with (workspace.root / "AGENTS.md").open("wb") as file:
        file.write(b"rule\n" * min(size // 5 + 1, 100_000))
        file.truncate(size)
    text = load(workspace)
    assert text is not None
    assert text.startswith("rule\nrule\n")
    assert text.endswith("[AGENTS.md is longer; the rest is left out]")
    assert len(text) < LIMIT + 100


def test_what_is_no_file_of_the_workspace_is_no_instruction(workspace: Workspace) -> None:
    path = workspace.root / "AGENTS.md"
    os.mkfifo(path)
    assert load(workspace) is None
    path.unlink()
    path.symlink_to("/etc/passwd")
    assert load(workspace) is None
    path.unlink()
    path.symlink_to("AGENTS.md")
    assert load(workspace) is None
