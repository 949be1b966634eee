"""The `symbols` tool as a model uses it."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.calling import call
from tools.errors import EnvironmentFault, InvalidArguments, OutsideWorkspace
from tools.files import NotFound
from tools.index import Index
from tools.index.queries import abbreviates
from tools.result import ToolResult
from tools.sandbox.policy import SandboxPolicy
from tools.symbols import Symbols, SymbolsArguments
from tools.workspace import Buffer, Workspace

FILES = {
    "app/users.py": '''"""Users."""

LIMIT = 10


class UserStore:
    """Keeps users."""

    def get_user_name(self, key):
        """The name of a user."""
        return self.names[key]

    def save(self):
        # get_user_name is not called here
        return "get_user_name"


def load(path):
    return UserStore()
''',
    "app/groups.py": """from app.users import UserStore, load


class GroupStore(UserStore):
    def save(self):
        return load(self.get_user_name(1))
""",
    "web/view.ts": """export interface View { title: string }

/** Shows a user. */
export function showUser(view: View): string {
  return getUserName(view) + load();
}

function getUserName(view: View): string {
  return view.title;
}
""",
    "README.md": "# load\n",
    "styles.css": "a { color: red }\n",
}


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Workspace]:
    root = tmp_path / "workspace"
    for path, text in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    workspace = Workspace(root.resolve(), SandboxPolicy())
    # On a machine that is busy a child may take longer to start than a tool waits.
    await Index.of(workspace).ready(60)
    yield workspace
    await workspace.close()


async def symbols(place: Workspace, **arguments: object) -> ToolResult:
    return await call(Symbols(), place, **arguments)


async def test_a_definition_by_its_name(place: Workspace) -> None:
    result = await symbols(place, query="UserStore")
    assert result.text == "app/users.py:6-15 class UserStore  — Keeps users."
    assert result.data == {"found": 1, "shown": 1, "complete": True, "files": 5}


async def test_a_name_may_say_what_it_is_in(place: Workspace) -> None:
    both = await symbols(place, query="save")
    assert both.text.split("\n") == [
        "app/groups.py:5-6 [GroupStore] def save(self)",
        "app/users.py:13-15 [UserStore] def save(self)",
    ]
    for query in ("UserStore.save", "UserStore::save", "UserStore#save", "userstore.save"):
        assert (await symbols(place, query=query)).text == both.text.split("\n")[1]
    assert "no definition of 'Nothing.save'" in (await symbols(place, query="Nothing.save")).text


async def test_names_that_begin_so_and_abbreviations(place: Workspace) -> None:
    result = await symbols(place, query="getUser")
    assert result.text.startswith("web/view.ts:8-10 function getUserName(view: View): string")
    assert "begin with it" in result.text
    for query in ("gun", "gUN", "getun", "usern"):
        result = await symbols(place, query=query)
        assert "get_user_name" in result.text and "getUserName" in result.text
        assert "may abbreviate" in result.text
    assert (await symbols(place, query="USERSTORE")).text.startswith("app/users.py:6-15 class UserStore")
    assert "also defined: load" not in (await symbols(place, query="LIMIT")).text


@pytest.mark.parametrize(
    ("short", "name", "score"),
    [
        ("gun", "get_user_name", 0),
        ("gUN", "getUserName", 0),
        ("getun", "getUserName", 1),
        ("usname", "get_user_name", 1),
        ("sername", "getUserName", 2),
        ("HTTPS", "parseHTTPServer", 1),
        ("gme", "get_user_name", 11),
        ("xyz", "get_user_name", None),
        ("nug", "get_user_name", None),
    ],
)
def test_how_well_a_name_is_abbreviated(short: str, name: str, score: int | None) -> None:
    found = abbreviates(short, name)
    assert found == score or (score is not None and score > 2 and found is not None and found > 2)


async def test_references_leave_comments_and_strings_out(place: Workspace) -> None:
    result = await symbols(place, query="get_user_name", kind="reference")
    assert result.text.split("\n") == [
        "app/groups.py",
        "6:return load(self.get_user_name(1))",
        "app/users.py",
        "9=def get_user_name(self, key):",
        "(2 lines in 2 files; = marks definitions)",
    ]
    result = await symbols(place, query="load", kind="reference", path="app")
    assert "web/view.ts" not in result.text and "app/users.py\n18=def load(path):" in result.text
    result = await symbols(place, query="nowhere", kind="reference")
    assert "no use of 'nowhere' in 3 files" in result.text and ".css" in result.text and "grep" in result.text


async def test_outlines_of_a_file_and_of_folders(place: Workspace) -> None:
    result = await symbols(place, path="app/users.py")
    assert result.text.split("\n") == [
        "app/users.py",
        "3 LIMIT = 10",
        "6-15 class UserStore  — Keeps users.",
        "  9-11 def get_user_name(self, key)  — The name of a user.",
        "  13-15 def save(self)",
        "18-19 def load(path)",
    ]
    result = await symbols(place, path="app")
    assert result.text.split("\n")[:2] == ["app/groups.py", "  4-6 class GroupStore(UserStore)"]
    assert "6-15 class UserStore" in result.text and "def save" not in result.text
    result = await symbols(place, path=".", kind="method")
    assert result.data["found"] == 3 and "[UserStore] def save" in result.text
    assert (await symbols(place, path="web", kind="interface")).data["found"] == 1


async def test_an_edit_is_seen_by_the_next_call(place: Workspace) -> None:
    file = place.root / "app" / "users.py"
    for number in range(5):
        file.write_text(f"def fresh_{number}(): pass\n")
        assert f"def fresh_{number}()" in (await symbols(place, query=f"fresh_{number}")).text
        (place.root / f"new_{number}.go").write_text(f"package a\n\nfunc Made{number}() {{}}\n")
        assert (await symbols(place, query=f"Made{number}")).text == f"new_{number}.go:3 func Made{number}()"
    assert "no definition" in (await symbols(place, query="UserStore")).text


async def test_unsaved_text_is_outlined_and_said_where_it_is_not_looked_at(place: Workspace) -> None:
    place.buffers = {
        "app/users.py": Buffer("def unsaved(): pass\n"),
        "draft.py": Buffer("def draft(): pass\n"),
    }
    assert "def unsaved()" in (await symbols(place, path="app/users.py")).text
    assert "def draft()" in (await symbols(place, path="draft.py")).text
    result = await symbols(place, query="load")
    assert "open in the editor, looked at as saved on disk: app/users.py, draft.py" in result.text
    assert "open in the editor" not in (await symbols(place, query="load", path="web")).text


async def test_an_ignored_file_has_an_outline_all_the_same(place: Workspace) -> None:
    (place.root / ".git").mkdir()
    (place.root / ".gitignore").write_text("built.py\n")
    (place.root / "built.py").write_text("def built(): pass\n")
    assert "no definition of 'built'" in (await symbols(place, query="built")).text
    assert "def built()" in (await symbols(place, path="built.py")).text


async def test_a_broken_file_is_outlined_and_said_to_be_broken(place: Workspace) -> None:
    (place.root / "broken.py").write_text("def one(): pass\n\ndef two(:\n\ndef three(): pass\n")
    result = await symbols(place, path="broken.py")
    assert "def one()" in result.text and "broken near line 3" in result.text


async def test_long_answers_are_cut_and_say_so(place: Workspace) -> None:
    (place.root / "many.py").write_text("".join(f"def many_{n}(argument): return {n}\n" for n in range(2000)))
    result = await symbols(place, query="many_")
    assert result.data["found"] == 2000 and result.data["shown"] == 50
    assert "incomplete: the best 50 of 2000" in result.text
    result = await symbols(place, path="many.py")
    assert "incomplete: the first 500 of 2000" in result.text
    assert "incomplete" in (await symbols(place, path=".")).text
    (place.root / "uses.py").write_text("x = 1\n" + "print(x)\n" * 300)
    result = await symbols(place, query="x", kind="reference")
    assert result.data == {"found": 301, "shown": 100, "complete": True, "files": 7}
    assert "incomplete: the first 100 of 301 lines" in result.text
    place.output_limit = 500
    for arguments in (
        {"query": "many_"},
        {"path": "many.py"},
        {"path": "."},
        {"query": "x", "kind": "reference"},
    ):
        result = await symbols(place, **arguments)
        assert len(result.text) < 900 and "incomplete" in result.text


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, InvalidArguments, "query"),
        ({"kind": "reference", "path": "app"}, InvalidArguments, "give the name"),
        ({"kind": "reference", "query": "a b"}, InvalidArguments, "no identifier"),
        ({"kind": "banana", "query": "a"}, InvalidArguments, "kind"),
        ({"path": "nowhere.py"}, NotFound, "nowhere.py"),
        ({"path": "../outside"}, OutsideWorkspace, "outside"),
        ({"path": "styles.css"}, InvalidArguments, "language is not known"),
        ({"path": "fifo"}, InvalidArguments, "fifo"),
        ({"query": "a", "banana": 1}, InvalidArguments, "unknown field"),
    ],
)
async def test_what_cannot_be_answered_says_what_to_do(
    place: Workspace, arguments: dict[str, object], error: type[Exception], message: str
) -> None:
    os.mkfifo(place.root / "fifo")
    with pytest.raises(error, match=message):
        await symbols(place, **arguments)


async def test_without_a_child_the_answer_is_to_use_grep(place: Workspace) -> None:
    index = Index.of(place)
    await index.indexer.close()
    with pytest.raises(EnvironmentFault, match="Use grep instead"):
        await symbols(place, query="load")


async def test_calls_at_once_are_all_answered(place: Workspace) -> None:
    results = await asyncio.gather(*(symbols(place, query="load") for _ in range(20)))
    assert {result.text.split("\n")[0] for result in results} == {"app/users.py:18-19 def load(path)"}


def test_the_model_is_told_how_references_are_asked_for() -> None:
    schema = Symbols.schema()["function"]
    assert "`reference`" in schema["description"]
    assert "reference" in schema["parameters"]["properties"]["kind"]["enum"]
    assert set(SymbolsArguments.model_fields) == {"query", "path", "kind"}
