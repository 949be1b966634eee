"""Workspaces with an index, and a child process that ends with the test."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tools.index import Index
from tools.sandbox.policy import SandboxPolicy
from tools.workspace import Workspace

Indexed = Callable[[Path], Index]


@pytest.fixture
async def indexed(tmp_path: Path) -> AsyncIterator[Indexed]:
    """The index of a folder, kept in one cache, each with a child of its own."""
    made: list[Workspace] = []

    def open_index(root: Path) -> Index:
        made.append(Workspace(root.resolve(), SandboxPolicy(), cache=tmp_path / "cache"))
        return Index.of(made[-1])

    yield open_index
    for workspace in made:
        await workspace.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder
