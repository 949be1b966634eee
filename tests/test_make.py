"""`make` on machines that lack something: it says what and what to do, and repairs what it can."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def venv(target: Path, *, path: Path | None = None, python: str = "") -> "subprocess.CompletedProcess[str]":
    env = {"PATH": str(path) if path else os.environ["PATH"], "HOME": str(target.parent), "PYTHON": python}
    return subprocess.run(
        ["/bin/sh", ROOT / ".ci" / "venv", target],
        env=env,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
    )


def program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("#!/bin/sh\n" + script)
    (folder / name).chmod(0o755)


def test_without_python_it_says_which_one_is_needed(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    done = venv(tmp_path / "venv", path=tmp_path / "bin")
    assert done.returncode == 1
    assert "no Python 3.11 or newer" in done.stderr


def test_an_old_python_is_passed_over(tmp_path: Path) -> None:
    program(tmp_path / "bin", "python3", "exit 1\n")
    done = venv(tmp_path / "venv", path=tmp_path / "bin")
    assert "no Python 3.11 or newer" in done.stderr


def test_a_python_without_venv_is_named(tmp_path: Path) -> None:
    program(tmp_path / "bin", "python3", 'case "$*" in *venv*) exit 1 ;; esac\nexit 0\n')
    program(tmp_path / "bin", "rm", "exit 0\n")
    done = venv(tmp_path / "venv", path=tmp_path / "bin")
    assert done.returncode == 1
    assert "python3-venv" in done.stderr


def test_a_broken_environment_is_made_again_and_a_good_one_kept(tmp_path: Path) -> None:
    target = tmp_path / "venv"
    (target / "bin").mkdir(parents=True)
    (target / "bin" / "python").symlink_to("/nowhere/python3")
    base = str(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")
    done = venv(target, python=base)
    assert done.returncode == 0, done.stderr
    assert (
        subprocess.run([target / "bin" / "python", "-m", "pip", "--version"], capture_output=True).returncode
        == 0
    )
    (target / "kept").touch()
    assert venv(target, python=base).returncode == 0
    assert (target / "kept").exists()


def test_node_is_asked_for_by_name(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    script = ROOT / ".ci" / "node"
    env = {"PATH": str(tmp_path / "bin")}
    done = subprocess.run(["/bin/sh", script], env=env, capture_output=True, text=True)
    assert (done.returncode, "Node 20" in done.stderr) == (1, True)
    program(tmp_path / "bin", "npm", "exit 0\n")
    program(tmp_path / "bin", "node", 'case "$1" in --version) echo v18.0.0 ;; *) exit 1 ;; esac\n')
    done = subprocess.run(["/bin/sh", script], env=env, capture_output=True, text=True)
    assert (done.returncode, "v18.0.0 is too old" in done.stderr) == (1, True)


def test_an_unknown_group_of_checks_is_refused() -> None:
    done = subprocess.run(["bash", ROOT / ".ci" / "check", "nosuch"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "there are: system lint" in done.stderr


def test_every_target_is_made_of_known_parts(tmp_path: Path) -> None:
    """A dry run of each target on a bare copy finds a rule for everything."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("pyproject.toml", ".ci", "extension/package.json", "extension/package-lock.json"):
        source, copy = ROOT / name, tmp_path / name
        copy.parent.mkdir(exist_ok=True)
        shutil.copytree(source, copy) if source.is_dir() else shutil.copy(source, copy)
    (tmp_path / "server" / "commands").mkdir(parents=True)
    (tmp_path / "server" / "commands" / "embedded.py").touch()
    for target in ("run", "test", "test-long", "bench", "lint", "dist"):
        done = subprocess.run(["make", "-n", target], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
