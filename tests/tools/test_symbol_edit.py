"""A definition is replaced by its name: exactly it, or nothing."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.calling import call, saw
from tools.applying import Ambiguous, NoMatch, Refused, Unfit
from tools.edit import Edit
from tools.errors import ToolError
from tools.result import ToolResult
from tools.sandbox.policy import SandboxPolicy
from tools.workspace import Workspace

SOURCE = '''"""A module."""

import functools


def first(a, b):
    """Add."""
    return a + b


class Parser:
    limit = 10

    # How far it is.
    @property
    @functools.cache
    def position(self):
        return self._at

    def parse(self, text):
        """Parse."""
        for line in text.splitlines():
            if line:
                yield line

    def close(self):
        pass


class Writer:
    def close(self):
        return None
'''


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Workspace]:
    workspace = Workspace(tmp_path.resolve(), SandboxPolicy())
    yield workspace
    await workspace.close()


def write(place: Workspace, path: str, text: str) -> Path:
    file = place.root / path
    file.write_bytes(text.encode())
    saw(place, path)
    return file


async def replace(place: Workspace, path: str, *edits: tuple[str, str]) -> ToolResult:
    return await call(
        Edit(), place, path=path, edits=[{"old": "", "anchor": anchor, "new": new} for anchor, new in edits]
    )


@pytest.mark.case("edit-10")
@pytest.mark.parametrize("anchor", ["Parser.parse", "parse", "Parser.parse()", "def parse(self, text):"])
@pytest.mark.parametrize("margin", ["", "    "])
async def test_a_large_body_is_replaced_by_its_name(place: Workspace, anchor: str, margin: str) -> None:
    file = write(place, "a.py", SOURCE)
    new = f"{margin}def parse(self, text, strict=False):\n{margin}    return list(text)\n"
    result = await replace(place, "a.py", (anchor, new))
    start, end = SOURCE.index("    def parse"), SOURCE.index("    def close")
    body = "    def parse(self, text, strict=False):\n        return list(text)\n\n"
    assert file.read_text() == SOURCE[:start] + body + SOURCE[end:]
    assert "+    def parse(self, text, strict=False):" in result.text
    assert result.changes[0].before == SOURCE.encode()


@pytest.mark.case("edit-10")
async def test_decorators_belong_to_it_and_comments_are_not_doubled(place: Workspace) -> None:
    file = write(place, "a.py", SOURCE)
    await replace(place, "a.py", ("Parser.position", "@property\ndef position(self):\n    return 0\n"))
    kept = "    # How far it is.\n    @property\n    def position(self):\n        return 0\n\n    def parse"
    assert kept in file.read_text() and "functools.cache" not in file.read_text()
    new = "    # Where it stands.\n    @property\n    def position(self):\n        return 1\n"
    await replace(place, "a.py", ("Parser.position", new))
    assert "    limit = 10\n\n" + new + "\n    def parse" in file.read_text()


@pytest.mark.case("edit-10")
async def test_several_and_ordinary_edits_go_into_one_call(place: Workspace) -> None:
    file = write(place, "a.py", SOURCE)
    edits = [
        {
            "old": "",
            "anchor": "first",
            "new": "def first(a):\n    return a\n\n\ndef second(b):\n    return b",
        },
        {"old": "limit = 10", "new": "limit = 20"},
        {"old": "", "anchor": "Writer", "new": "class Writer:\n    pass"},
    ]
    await call(Edit(), place, path="a.py", edits=edits)
    text = file.read_text()
    assert "def second(b):\n    return b\n\n\nclass Parser:" in text and "limit = 20" in text
    assert text.endswith("\n\n\nclass Writer:\n    pass\n")


REFUSED = {
    "ambiguous": ("close", "def close(self):\n    return 1", Ambiguous, "Parser.close at line 26"),
    "unknown": ("Parser.parze", "def parze(self):\n    return 1", NoMatch, "Parser.parse"),
    "wrong class": ("Writer.parse", "def parse(self):\n    return 1", NoMatch, "nothing is defined"),
    "only a body": ("Parser.parse", "return list(text)", Refused, "whole definition"),
    "cut off": ("Parser.parse", "def parse(self, text):\n    for line in (text", Refused, "whole definition"),
    "head only": ("first", "def first(a, b):", Refused, "whole definition"),
    "more after it": ("first", "def first(a, b):\n    return a\n\nprint(1)", Refused, "whole definition"),
    "empty": ("first", " \n", Refused, "empty"),
    "omission": (
        "first",
        "def first(a, b):\n    # ... existing code ...\n    return 1",
        Refused,
        "placeholder",
    ),
}


@pytest.mark.case("edit-10")
@pytest.mark.parametrize("why", REFUSED)
async def test_what_is_not_certain_is_refused(place: Workspace, why: str) -> None:
    anchor, new, error, message = REFUSED[why]
    file = write(place, "a.py", SOURCE)
    with pytest.raises(error, match=message):
        await replace(place, "a.py", (anchor, new))
    assert file.read_text() == SOURCE


@pytest.mark.case("edit-10")
async def test_a_file_that_was_not_read_or_has_changed_or_is_broken_is_refused(place: Workspace) -> None:
    file = write(place, "a.py", SOURCE)
    del place.seen["a.py"]
    new = "def first(a, b):\n    return 0\n"
    with pytest.raises(Unfit, match="not read"):
        await replace(place, "a.py", ("first", new))
    saw(place, "a.py")
    file.write_text("x = 1\n" + SOURCE)
    with pytest.raises(Unfit, match="has changed"):
        await replace(place, "a.py", ("first", new))
    write(place, "a.py", SOURCE.replace("return a + b", "return (a +"))
    with pytest.raises(ToolError):
        await replace(place, "a.py", ("first", new))
    write(place, "notes.txt", "first\n")
    with pytest.raises(Unfit, match="cannot be parsed"):
        await replace(place, "notes.txt", ("first", new))


@pytest.mark.case("edit-10")
async def test_line_endings_and_braces_stay(place: Workspace) -> None:
    source = "package a\n\n// Add adds.\nfunc Add(a, b int) int {\n\treturn a + b\n}\n\nvar x = 1\n"
    source = source.replace("\n", "\r\n")
    file = write(place, "a.go", source)
    await replace(place, "a.go", ("Add", "func Add(a, b, c int) int {\n\treturn a + b + c\n}"))
    assert file.read_bytes().decode() == source.replace("b int", "b, c int").replace("a + b", "a + b + c")
    source = "class A {\n  one() {\n    return '\u00e9';\n  }\n\n  two() {\n    return 2;\n  }\n}\n"
    file = write(place, "a.ts", source)
    await replace(place, "a.ts", ("A.two", "two(): number {\n  return 3;\n}"))
    assert file.read_text() == source.replace("two() {", "two(): number {").replace("return 2", "return 3")
