"""Workspaces whose shell runs in a real sandbox."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.hands import Hands, Opener
from tools.sandbox import SandboxPolicy
from tools.workspace import Workspace


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Opener]:
    made: list[Workspace] = []

    def open_workspace(policy: SandboxPolicy) -> Hands:
        root = (tmp_path / f"workspace{len(made)}").resolve()
        root.mkdir()
        made.append(Workspace(root, policy))
        return Hands(made[-1])

    yield open_workspace
    for workspace in made:
        await workspace.close()


@pytest.fixture
def shell(opened: Opener) -> Hands:
    return opened(SandboxPolicy(tier="bubblewrap"))
