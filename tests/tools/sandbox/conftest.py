"""Workspaces with a real sandbox around them."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tools.sandbox import Ran, Sandbox, SandboxPolicy, start

Starter = Callable[..., Awaitable[Sandbox]]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that any user can reach: pytest's own are closed again by every other run of it."""
    path = Path(tempfile.mkdtemp(prefix="etude-test-")).resolve()
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = (tmp_path / "home" / "project").resolve()
    path.mkdir(parents=True)
    return path


@pytest.fixture
def home(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of the test's own, around the workspace."""
    monkeypatch.setenv("HOME", str(root.parent))
    return root.parent


@pytest.fixture
async def started(root: Path, home: Path) -> AsyncIterator[Starter]:
    """Starts sandboxes around `root` and ends them."""
    made: list[Sandbox] = []

    async def starter(place: Path = root, **policy: object) -> Sandbox:
        made.append(await start(SandboxPolicy(**{"tier": "bubblewrap", **policy}), place))  # pyright: ignore[reportArgumentType]
        return made[-1]

    yield starter
    for sandbox in made:
        await sandbox.close()


@pytest.fixture
def bash(started: Starter) -> Callable[[str], Awaitable[Ran]]:
    """Runs one script in a sandbox around `root`."""
    made: list[Sandbox] = []

    async def run(script: str) -> Ran:
        if not made:
            made.append(await started())
        return await made[0].run(["bash", "-c", script])

    return run
