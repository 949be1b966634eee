"""Which folders of the host a sandbox shows, and which never."""

from pathlib import Path

import pytest

from tools.sandbox.toolchains import Toolchains, discover


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = (tmp_path / "home").resolve()
    path.mkdir()
    return path


@pytest.fixture
def workspace(home: Path) -> Path:
    path = home / "code" / "project"
    path.mkdir(parents=True)
    return path


def _tool(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def _found(home: Path, workspace: Path, path: list[Path], read: tuple[Path, ...] = ()) -> Toolchains:
    environment = {"HOME": str(home), "PATH": ":".join(map(str, [*path, "/usr/bin"]))}
    return discover(workspace, read, environment)


def _mine(found: Toolchains, home: Path) -> set[str]:
    return {str(root.relative_to(home)) for root in found.roots if home in root.parents or root == home}


def test_known_places_are_shown_and_nothing_else(home: Path, workspace: Path) -> None:
    for name in (".pyenv", ".nvm", ".local/share/uv/python", ".ssh", "Documents", ".config/gh"):
        (home / name).mkdir(parents=True)
    assert _mine(_found(home, workspace, []), home) == {".pyenv", ".nvm", ".local/share/uv"}


def test_path_brings_the_installation_around_its_bin(home: Path, workspace: Path) -> None:
    _tool(home / "tools" / "go1" / "bin" / "go")
    (home / "tools" / "go1" / "pkg").mkdir()
    _tool(home / "scripts" / "mine")
    path = [home / "tools" / "go1" / "bin", home / "scripts", home / "gone"]
    found = _found(home, workspace, path)
    assert _mine(found, home) == {"tools/go1", "scripts"}
    assert found.path.split(":")[:3] == [str(path[0]), str(path[1]), "/usr/bin"]


def test_a_bin_of_the_home_does_not_bring_the_home(home: Path, workspace: Path) -> None:
    _tool(home / "bin" / "mine")
    (home / "lib").mkdir()
    _tool(home / ".local" / "bin" / "tool")
    (home / ".local" / "share" / "keyrings").mkdir(parents=True)
    found = _found(home, workspace, [home / "bin", home / ".local" / "bin"])
    assert _mine(found, home) == {"bin", ".local/bin"}


def test_links_of_path_bring_what_they_point_to(home: Path, workspace: Path) -> None:
    target = _tool(home / "opt" / "tool" / "bin" / "tool")
    (home / "opt" / "tool" / "lib").mkdir()
    (home / "bin").mkdir()
    (home / "bin" / "tool").symlink_to(target)
    (home / "bin" / "key").symlink_to(home / ".ssh" / "id_rsa")
    assert _mine(_found(home, workspace, [home / "bin"]), home) == {"bin", "opt/tool"}


def test_the_workspace_chooses_nothing(home: Path, workspace: Path) -> None:
    """What the agent can write must not expose a folder at the next start."""
    (home / "secret" / "lib").mkdir(parents=True)
    _tool(home / "secret" / "bin" / "python")
    (workspace / ".venv" / "bin").mkdir(parents=True)
    (workspace / ".venv" / "bin" / "python").symlink_to(home / "secret" / "bin" / "python")
    (workspace / ".venv" / "pyvenv.cfg").write_text(f"home = {home / 'secret' / 'bin'}\n")
    for path in ([], [workspace / ".venv" / "bin"]):
        assert _mine(_found(home, workspace, path), home) == set()
    (workspace / "bin").symlink_to(home / "secret" / "bin")
    assert _mine(_found(home, workspace, [workspace / "bin"]), home) == set()


def test_what_holds_the_workspace_or_a_home_is_never_a_root(home: Path, workspace: Path) -> None:
    (home / "code" / "bin").mkdir()
    (home / "code" / "lib").mkdir()
    found = _found(home, workspace, [home / "code" / "bin", home, home.parent, Path("/")])
    assert _mine(found, home) == {"code/bin"}
    assert not any(root in workspace.parents for root in found.roots)


def test_credentials_stay_covered_even_when_their_folder_is_asked_for(home: Path, workspace: Path) -> None:
    (home / ".cargo").mkdir()
    (home / ".cargo" / "credentials.toml").write_text("token")
    (home / ".ssh").mkdir()
    (home / ".netrc").write_text("password")
    found = _found(home, workspace, [])
    assert found.covered == (home / ".cargo" / "credentials.toml",)
    wide = _found(home, workspace, [], read=(home, home / ".ssh"))
    assert home in wide.roots
    assert {path.name for path in wide.covered} == {"credentials.toml", ".ssh", ".netrc"} | {
        path.name for path in wide.covered if home not in path.parents
    }
    assert not any(path.name == ".ssh" for path in _found(home, workspace, [], read=(home / ".ssh",)).roots)


def test_path_keeps_only_what_can_be_seen(home: Path, workspace: Path) -> None:
    (workspace / "node_modules" / ".bin").mkdir(parents=True)
    found = _found(home, workspace, [workspace / "node_modules" / ".bin", Path("/nowhere/bin")])
    assert found.path.split(":")[0] == str(workspace / "node_modules" / ".bin")
    assert "/nowhere/bin" not in found.path
    assert "/usr/bin" in found.path
