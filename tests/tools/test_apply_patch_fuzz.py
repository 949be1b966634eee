"""What git and diff make between any two files, applied, gives the second one, byte for byte."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from tests.support.calling import call, saw, tree, workspace
from tools.apply_patch import ApplyPatch
from tools.applying import EditError
from tools.errors import ToolError

LINE = st.sampled_from(
    [
        "",
        " ",
        "a",
        "b",
        "    a",
        "\ta",
        "é",
        "-- x",
        "++ y",
        "--- a/f",
        "+++ b/f",
        "@@ -1 +1 @@",
        "\\ x",
        "a\fb",
        "日本",
    ]
) | st.text(alphabet=st.characters(exclude_categories=("Cs", "Cc")), max_size=8)
ENDING = st.sampled_from(["\n", "\n", "\n", "\r\n"])


@st.composite
def contents(draw: st.DrawFn) -> str:
    lines = draw(st.lists(st.tuples(LINE, ENDING), max_size=25))
    text = "".join(line + ending for line, ending in lines)
    return text + draw(LINE) if draw(st.booleans()) else text


@st.composite
def pairs(draw: st.DrawFn) -> tuple[str, str]:
    """A text and another that mostly has the same lines."""
    old = draw(contents())
    lines = old.splitlines(keepends=True)
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(lines)))
        new = draw(st.lists(st.tuples(LINE, ENDING), max_size=3))
        lines[at : at + draw(st.integers(0, 3))] = [line + ending for line, ending in new]
    new = "".join(lines)
    return old, draw(st.sampled_from([new, new, new, new.rstrip("\n"), new + "x"]))


@pytest.fixture(autouse=True)
def programs() -> None:
    for program in ("git", "diff"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


def _git(folder: Path, *arguments: str) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    ran = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, env=environment, check=True)
    return ran.stdout.decode("utf-8")


def _git_diff(folder: Path, before: Path, after: Path, *options: str) -> str:
    """What git shows between two folders, as trees of a repository in a third."""
    _git(folder, "init", "-q")
    trees = []
    for side in (before, after):
        where = (f"--git-dir={folder}/.git", f"--work-tree={side}")
        _git(side, *where, "add", "-A", ".")
        trees.append(_git(side, *where, "write-tree").strip())
    return _git(folder, "diff", "--no-color", "--text", *options, *trees)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pair=pairs(), how=st.sampled_from(["git", "diff", "long"]))
@example(pair=("", "a"), how="diff")
@example(pair=("a", "a\n"), how="git")
@example(pair=("\ufeffa\n", "\ufeffb\n"), how="git")
@example(pair=("\ufeffa\n", "b\n"), how="diff")
@example(pair=("a\r\nb\n", "a\nb\r\n"), how="git")
@example(pair=("-- x\n" * 3, "++ y\n" * 2), how="diff")
async def test_a_diff_of_any_two_files_gives_the_second(
    pair: tuple[str, str], how: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    old, new = (text.encode("utf-8") for text in pair)
    assume(old != new)
    folder = tmp_path_factory.mktemp("fuzz")
    for side, data in (("a", old), ("b", new)):
        (folder / side).mkdir()
        (folder / side / "f").write_bytes(data)
    if how == "diff":
        command = ["diff", "-u", "--text", "a/f", "b/f"]
        patch = subprocess.run(command, cwd=folder, capture_output=True).stdout.decode("utf-8")
    else:
        (folder / "repository").mkdir()
        options = ["-U9"] if how == "long" else []
        patch = _git_diff(folder / "repository", folder / "a", folder / "b", *options)
    place = workspace(folder / "a")
    saw(place, "f")
    result = await call(ApplyPatch(), place, patch=patch)
    assert tree(place.root) == {"f": new}
    assert result.changes[0].after == new
    shutil.rmtree(folder)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.data(),
    names=st.lists(
        st.sampled_from(["x", "d/y", "d/e/z", "é ü", 'q"t', "tab\there", "sp ace/f"]), min_size=1, unique=True
    ),
)
async def test_a_diff_of_any_two_trees_gives_the_second(
    data: st.DataObject, names: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    for name in names:
        old, new = data.draw(pairs())
        for side, text in (("a", old), ("b", new)):
            if data.draw(st.integers(0, 4)):
                file = folder / side / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(text.encode("utf-8"))
                file.chmod(0o755 if data.draw(st.booleans()) else 0o644)
    for side in ("a", "b"):
        (folder / side).mkdir(exist_ok=True)
    (folder / "repository").mkdir()
    options = data.draw(st.sampled_from([[], ["--no-renames"], ["-M20%"]]))
    patch = _git_diff(folder / "repository", folder / "a", folder / "b", *options)
    expected = {
        path: (content, (folder / "b" / path).stat().st_mode & 0o777)
        for path, content in tree(folder / "b").items()
    }
    assume(patch.strip())
    place = workspace(folder / "a")
    for path in tree(place.root):
        saw(place, path)
    await call(ApplyPatch(), place, patch=patch)
    found = {
        path: (content, (place.root / path).stat().st_mode & 0o777)
        for path, content in tree(place.root).items()
    }
    assert found == expected
    shutil.rmtree(folder)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    old=contents(),
    patch=st.lists(
        LINE
        | st.sampled_from(
            [
                "*** Begin Patch",
                "*** Update File: a",
                "*** Add File: n",
                "*** Delete File: a",
                "*** Move to: m",
                "@@",
                "@@ a",
                "*** End of File",
                "*** End Patch",
                "--- a/a",
                "+++ b/a",
                "@@ -1,2 +1,2 @@",
                " a",
                "-a",
                "+c",
                "-b",
                " b",
                "+",
            ]
        ),
        max_size=14,
    ),
)
async def test_no_patch_whatever_does_half(
    old: str, patch: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "a").write_bytes(old.encode("utf-8"))
    place = workspace(folder)
    saw(place, "a")
    before = tree(folder)
    try:
        result = await call(ApplyPatch(), place, patch="\n".join(patch))
    except ToolError as error:
        assert tree(folder) == before
        assert error.error_class == "invalid_arguments"
        assert not isinstance(error, EditError) or error.message
    else:
        after = tree(folder)
        for change in result.changes:
            assert after.get(change.path) == change.after and before.get(change.path) == change.before
        assert {p for p in before | after if before.get(p) != after.get(p)} <= {
            c.path for c in result.changes
        }
    shutil.rmtree(folder)
