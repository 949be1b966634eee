"""A workspace that disappears while its session lives: every tool says so, none calls it its own defect."""

from pathlib import Path

import pytest

from tools.errors import EnvironmentFault
from tools.registry import TOOLS
from tools.sandbox.policy import SandboxPolicy
from tools.workspace import Workspace

CALLS = [
    ("read", '{"path":"a"}'),
    ("read", '{"path":"/elsewhere/a"}'),
    ("grep", '{"pattern":"a"}'),
    ("edit", '{"path":"a","edits":[{"old":"x","new":"y"}]}'),
    ("edit", '{"path":"new/a","edits":[{"old":"","new":"y"}]}'),
    ("shell", '{"command":"echo hi"}'),
]


@pytest.mark.parametrize(("name", "raw"), CALLS)
async def test_a_workspace_that_is_gone_is_named(tmp_path: Path, name: str, raw: str) -> None:
    workspace, tool = Workspace(tmp_path / "gone", SandboxPolicy()), TOOLS[name]
    try:
        with pytest.raises(EnvironmentFault, match="gone"):
            await tool.propose(tool.parse(raw), workspace)
            await tool.run(tool.parse(raw), workspace, lambda _: None)
    finally:
        await workspace.close()
    assert not (tmp_path / "gone").exists()
