"""Every attempt, in every tier that claims to refuse it; what got out is looked for from outside."""

import os
from pathlib import Path

import pytest

from tests.tools.sandbox.escapes import of_files, of_git, of_kernel, of_ours, of_sockets
from tests.tools.sandbox.escapes.attempt import Attempt
from tests.tools.sandbox.escapes.stage import attempted, template
from tools.sandbox import Tier, landlock

ATTEMPTS = (
    *of_files.ATTEMPTS, *of_kernel.ATTEMPTS, *of_sockets.ATTEMPTS, *of_git.ATTEMPTS, *of_ours.ATTEMPTS,
)  # fmt: skip
CLAIMS = [
    pytest.param(attempt, tier, id=f"{attempt.name} [{tier}]")
    for attempt in ATTEMPTS
    for tier in ("bubblewrap", "landlock")
    if tier in attempt.tiers
]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return template(tmp_path_factory.mktemp("repository"))


@pytest.fixture
def folder(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Around everything; the home is in it."""
    monkeypatch.setenv("HOME", str(open_folder / "home"))
    monkeypatch.setenv("SSH_AUTH_SOCK", str(open_folder / "home" / ".ssh" / "agent.sock"))
    monkeypatch.setenv("PATH", f"{open_folder}/home/.cargo/bin:{os.environ['PATH']}")
    return open_folder


@pytest.mark.parametrize(("attempt", "tier"), CLAIMS)
async def test_it_does_not_get_out(attempt: Attempt, tier: Tier, folder: Path, repository: Path) -> None:
    if tier == "landlock" and landlock.version() < 6:
        pytest.skip("this kernel's Landlock does not scope signals and sockets: the tier claims less here")
    assert await attempted(attempt, tier, folder, repository) == []


@pytest.mark.skipif(os.getuid() == 0, reason="what is tried here would really happen, to the machine")
@pytest.mark.parametrize("attempt", [each for each in ATTEMPTS if each.control], ids=lambda each: each.name)
async def test_it_would_get_out_unconfined(attempt: Attempt, folder: Path, repository: Path) -> None:
    """Else it would prove nothing that the sandbox refuses it."""
    assert await attempted(attempt, "none", folder, repository) != []


def test_there_are_enough_of_them() -> None:
    assert len({attempt.name for attempt in ATTEMPTS}) == len(ATTEMPTS) >= 60
    for tier in ("bubblewrap", "landlock"):
        assert sum(tier in attempt.tiers for attempt in ATTEMPTS) >= 60
