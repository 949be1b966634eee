"""A change that breaks the syntax of a file is said in its result, and stays."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.calling import call, saw
from tools.edit import Edit
from tools.result import FileChange, ToolResult
from tools.sandbox.policy import SandboxPolicy
from tools.syntax import with_syntax
from tools.workspace import Workspace


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Workspace]:
    workspace = Workspace(tmp_path.resolve(), SandboxPolicy())
    yield workspace
    await workspace.close()


async def said(place: Workspace, path: str, before: str | None, after: str) -> str:
    change = FileChange(path, before.encode() if before is not None else None, after.encode())
    result = await with_syntax(ToolResult("Edited.", (change,)), place)
    assert result.text.startswith("Edited.")
    return result.text.removeprefix("Edited.").strip()


@pytest.mark.case("edit-9")
async def test_an_edit_that_breaks_the_syntax_is_applied_and_said(place: Workspace) -> None:
    file = place.root / "a.py"
    file.write_text("def f(a):\n    return (a)\n\n\ndef g():\n    return 2\n")
    saw(place, "a.py")
    result = await call(Edit(), place, path="a.py", edits=[{"old": "return (a)", "new": "return (a"}])
    result = await with_syntax(result, place)
    assert "return (a\n" in file.read_text()
    assert "Syntax: a.py does not parse any more, near line" in result.text
    assert result.data["syntax"] == ["a.py"] and result.error is None
    result = await call(Edit(), place, path="a.py", edits=[{"old": "return (a", "new": "return (a)"}])
    assert (await with_syntax(result, place)).text == result.text


@pytest.mark.case("edit-9")
@pytest.mark.parametrize(
    ("path", "good", "bad"),
    [
        ("a.py", "x = [1]\n", "x = [1\n"),
        ("a.ts", "function f() { return 1; }\n", "function f() { return 1;\n"),
        ("a.go", "package a\nfunc f() {}\n", "package a\nfunc f( {}\n"),
        ("a.rs", "fn f() {}\n", "fn f() {\n"),
        ("A.java", "class A { void f() {} }\n", "class A { void f() {}\n"),
        ("a.c", "int f(void) { return 1; }\n", "int f(void) { return 1;\n"),
        ("a.rb", "def f\n  1\nend\n", "def f\n  1\n"),
        ("a.php", "<?php function f() { return 1; }\n", "<?php function f() { return 1;\n"),
        ("A.cs", "class A { void F() {} }\n", "class A { void F() {}\n"),
    ],
)
async def test_breaking_is_said_and_mending_is_not(place: Workspace, path: str, good: str, bad: str) -> None:
    assert path in await said(place, path, good, bad)
    assert path in await said(place, path, None, bad)
    assert await said(place, path, bad, good) == ""
    assert await said(place, path, good, good.replace("1", "2")) == ""


@pytest.mark.case("edit-9")
async def test_what_was_broken_before_or_is_not_known_is_not_mentioned(place: Workspace) -> None:
    broken = "x = [1\n" * 3
    assert await said(place, "a.py", broken, broken.replace("x", "y")) == ""
    assert await said(place, "a.txt", "(", "((") == ""
    assert await said(place, "a.py", "x = 1\n", "(" * 1_100_000) == ""
    deleted = ToolResult("Deleted.", (FileChange("a.py", b"x = 1\n", None),))
    assert await with_syntax(deleted, place) is deleted


@pytest.mark.case("edit-9")
async def test_the_first_new_place_is_named(place: Workspace) -> None:
    before = "def f():\n    return 1\n\n\n" * 20
    lines = before.split("\n")
    lines[41] = "    return [1, {2)"
    assert "near line 4" in await said(place, "a.py", before, "\n".join(lines))
