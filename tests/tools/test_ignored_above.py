"""Rules of ignore files above the searched folder, as git itself understands them."""

import itertools
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support.calling import call, workspace
from tools.grep import Grep
from tools.index import Index

FOLDERS = ("", "src", "src/gen", "src/deep", "src/deep/gen", "src/deep/src/gen", "gen", "other/src/gen")
NAMES = ("a.py", "b.log", "keep.log", "[x].py", "ü.py")


def tree(root: Path, ignores: dict[str, str]) -> None:
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    for folder, name in itertools.product(FOLDERS, NAMES):
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / name).write_text("needle = 1\n")
    for path, text in ignores.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def kept_by_git(root: Path, folder: str) -> set[str]:
    listed = [
        "git",
        "-C",
        str(root),
        "-c",
        "core.excludesFile=/dev/null",
        "ls-files",
        "-coz",
        "--exclude-standard",
    ]
    found = subprocess.run([*listed, "--", folder], capture_output=True, check=True).stdout
    return {path for path in found.decode().split("\0") if path.endswith((".py", ".log"))}


def paths(text: str) -> set[str]:
    return {line for line in text.split("\n") if line.endswith((".py", ".log"))}


RULES = [
    {".gitignore": "/src/gen/\n"},
    {".gitignore": "src/gen\n"},
    {".gitignore": "gen/\n"},
    {".gitignore": "*.log\n!keep.log\n"},
    {".gitignore": "/src/**/gen/\n"},
    {".gitignore": "**/deep/gen/\n"},
    {".gitignore": "/src/*/gen\n"},
    {".gitignore": "/src/deep/*\n!/src/deep/gen\n!/src/deep/b.log\n"},
    {".gitignore": "/s?c/gen/\n# /src/deep/\n\\[x].py\n"},
    {".gitignore": "/[rs]rc/deep/**\n"},
    {".gitignore": "*.log\n", "src/.gitignore": "!b.log\n/gen/\n"},
    {".gitignore": "*.log\n", "src/deep/.gitignore": "!*.log\n"},
    {".gitignore": "/src/deep/gen/a.py   \nü.py\r\n"},
    {".git/info/exclude": "/src/gen/\n*.log\n", ".gitignore": "!keep.log\n"},
    {".gitignore": "/fd/\nself\nproc/**\n**/fd/**\n"},
]


@pytest.mark.parametrize("ignores", RULES, ids=lambda one: repr(next(iter(one.values()))))
async def test_a_folder_is_searched_as_git_sees_it_with_the_index_and_without(
    tmp_path: Path, ignores: dict[str, str]
) -> None:
    tree(tmp_path, ignores)
    place = workspace(tmp_path)
    plain: dict[str, set[str]] = {}
    for folder in _not_ignored(tmp_path):
        found = await call(Grep(), place, pattern="needle", path=folder, limit=1000)
        plain[folder] = paths(found.text)
        assert plain[folder] == kept_by_git(tmp_path, folder), folder
    assert "src" in plain
    try:
        assert (await Index.of(place).ready(60)).complete
        for folder, known in plain.items():
            found = await call(Grep(), place, pattern="needle", path=folder, limit=1000)
            assert paths(found.text) == known, folder
    finally:
        await place.close()


def _not_ignored(root: Path) -> Iterable[str]:
    for folder in FOLDERS[1:]:
        if kept_by_git(root, folder):
            yield folder


async def test_an_ignored_folder_is_searched_when_it_is_asked_for(tmp_path: Path) -> None:
    tree(tmp_path, {".gitignore": "/src/gen/\n/src/deep/**\n*.log\n"})
    for folder in ("src/gen", "src/deep/gen"):
        found = await call(Grep(), workspace(tmp_path), pattern="needle", path=folder)
        assert paths(found.text) == {f"{folder}/{name}" for name in NAMES if not name.endswith(".log")}


async def test_rules_end_at_a_repository_within(tmp_path: Path) -> None:
    tree(tmp_path, {".gitignore": "*.log\n", ".ignore": "/src/deep/a.py\n"})
    subprocess.run(["git", "init", "-q", str(tmp_path / "src")], check=True)
    place = workspace(tmp_path)
    whole = await call(Grep(), place, pattern="needle", limit=1000)
    for folder in ("src", "src/deep"):
        found = await call(Grep(), place, pattern="needle", path=folder, limit=1000)
        assert paths(found.text) == {path for path in paths(whole.text) if path.startswith(f"{folder}/")}
        assert f"{folder}/b.log" in paths(found.text)
