"""What checkers say of a workspace, and that nothing unknown is ever called clean."""

import json
import os
import shutil
import stat
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tools.diagnostics.tool import Diagnostics
from tools.errors import InvalidArguments
from tools.history import History
from tools.result import ToolResult
from tools.sandbox.policy import SandboxPolicy
from tools.snapshots import SnapshotStore
from tools.workspace import Workspace

NODE = Path(__file__).parents[3] / "extension" / "node_modules"
BAD = "import os\n\n\ndef f() -> int:\n    return undefined\n"


@pytest.fixture
async def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Workspace]:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    root = tmp_path.resolve() / "repo"
    root.mkdir()
    workspace = Workspace(root, SandboxPolicy(read=(NODE,) if NODE.is_dir() else ()))
    yield workspace
    await workspace.close()


async def ask(workspace: Workspace, paths: list[str] | None = None) -> ToolResult:
    tool = Diagnostics()
    parsed = tool.parse(json.dumps({} if paths is None else {"paths": paths}))
    await tool.propose(parsed, workspace)
    return await tool.run(parsed, workspace, lambda text: None)


def states(result: ToolResult) -> dict[str, str]:
    return {run["checker"]: run["state"] for run in result.data["runs"]}


def program(workspace: Workspace, name: str, text: str) -> None:
    """A checker of the workspace's own."""
    path = workspace.root / ".venv" / "bin" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


async def test_findings_of_real_checkers(place: Workspace) -> None:
    (place.root / "a.py").write_text(BAD)
    result = await ask(place, ["a.py"])
    assert states(result) == {"ruff": "fresh", "pyright": "fresh"}
    assert "a.py:5:12: error F821 Undefined name `undefined`" in result.text
    assert "a.py:1:8: warning F401" in result.text
    assert 'a.py:5:12: error reportUndefinedVariable "undefined" is not defined' in result.text
    assert "which of them are new in this turn is not known" in result.text
    (place.root / "a.py").write_text("x: int = 1\n")
    result = await ask(place, ["."])
    assert states(result) == {"ruff": "clean", "pyright": "clean"}
    assert "ruff: clean\npyright: clean" in result.text
    assert result.data["tier"] == "bubblewrap"


async def test_only_what_is_new_in_the_turn_counts(place: Workspace, tmp_path: Path) -> None:
    (place.root / "a.py").write_text("import os\n\nx = missing\n")
    (place.root / "other.py").write_text("import sys\n")
    store = SnapshotStore(tmp_path / "snapshots")
    place.history = History(store, place.root, (await store.take(place.root)).tree)
    assert (await ask(place)).text.startswith("Nothing to check: no file was changed")
    assert states(await ask(place, ["a.py"]))["pyright"] == "fresh", "known from now on"
    (place.root / "a.py").write_text("import os\n\n# more\nx = missing\ny = gone\n")
    (place.root / "new.py").write_text("import re\n")
    result = await ask(place)
    runs = {run["checker"]: run for run in result.data["runs"]}
    assert [item["message"] for item in runs["ruff"]["findings"]] == [
        "Undefined name `gone`",
        "`re` imported but unused",
    ]
    assert (runs["ruff"]["found"], runs["ruff"]["new"]) == (4, 2)
    assert [item["message"] for item in runs["pyright"]["findings"]] == ['"gone" is not defined']
    assert "a.py:5:5: error F821 Undefined name `gone` [new]" in result.text
    assert "(2 were there before this turn)" in result.text and "missing" not in result.text
    again = await ask(place, ["a.py"])
    assert "a.py:4:5: error F821 Undefined name `missing`\n" in again.text, "named files are told whole"


async def test_all_is_new_in_a_file_of_this_turn(place: Workspace, tmp_path: Path) -> None:
    (place.root / "a.py").write_text("x: int = 1\n")
    store = SnapshotStore(tmp_path / "snapshots")
    place.history = History(store, place.root, (await store.take(place.root)).tree)
    (place.root / "new.py").write_text("x = missing\n")
    assert (
        'new.py:1:5: error reportUndefinedVariable "missing" is not defined [new]' in (await ask(place)).text
    )
    (place.root / "a.py").write_text("x = gone\n")
    assert "pyright: 2 errors; which of them are new in this turn is not known" in (await ask(place)).text


@pytest.mark.case("agent-22")
@pytest.mark.parametrize(
    ("script", "state", "said"),
    [
        ("sleep 30", "timed_out", "did not finish within 1 s"),
        ("echo half an answer; exit 1", "failed", "printed no JSON"),
        ("echo '[]'; exit 1", "failed", "exited with 1 and named nothing"),
        ("echo crashed >&2; exit 101", "failed", "exited with 101: crashed"),
        ("kill -SEGV $$", "failed", "exited with 139"),
        ("echo '{\"other\": 1}'", "failed", "other JSON than expected"),
        ("echo 'x = 2' >> a.py; echo '[]'", "stale", "files changed while it ran"),
        ("printf '\\377\\376'; exit 0", "failed", "printed no JSON"),
    ],
)
async def test_what_is_not_known_is_never_clean(
    place: Workspace, monkeypatch: pytest.MonkeyPatch, script: str, state: str, said: str
) -> None:
    from dataclasses import replace

    from tools.diagnostics import choice
    from tools.diagnostics.checkers import CHECKERS

    quick = [replace(checker, timeout_s=1.0) for checker in CHECKERS if checker.name == "ruff"]
    monkeypatch.setattr(choice, "CHECKERS", quick)
    (place.root / "a.py").write_text("x = 1\n")
    program(place, "ruff", script)
    result = await ask(place, ["a.py"])
    assert states(result) == {"ruff": state}
    assert said in result.text and "clean" not in result.text
    assert (result.error is None) == (state == "stale")


@pytest.mark.case("agent-22")
async def test_thousands_of_findings_are_counted_and_some_are_shown(place: Workspace) -> None:
    item = {"filename": "a.py", "location": {"row": 1, "column": 1}, "code": "E1", "message": "m" * 400}
    (place.root / "many.json").write_text(json.dumps([item] * 10_000))
    (place.root / "a.py").write_text("x = 1\n")
    program(place, "ruff", 'cat "$(dirname "$0")/../../many.json"; exit 1')
    result = await ask(place, ["a.py"])
    [ruff] = [run for run in result.data["runs"] if run["checker"] == "ruff"]
    assert ruff["found"] == 10_000 and len(ruff["findings"]) == 200
    assert "10000 warnings" in result.text and "9950 more are not shown" in result.text
    assert len(result.text) < 25_000


@pytest.mark.case("agent-22")
async def test_unsaved_text_makes_an_answer_stale(place: Workspace) -> None:
    from tools.workspace import Buffer

    (place.root / "a.py").write_text("x = 1\n")
    place.buffers = {"a.py": Buffer("x = undefined\n")}
    result = await ask(place, ["a.py"])
    assert set(states(result).values()) == {"stale"}
    assert "the editor holds unsaved text of a.py" in result.text


@pytest.mark.skipif(not NODE.is_dir(), reason="the extension's packages are not installed (make web)")
async def test_a_project_in_a_folder_is_checked_there(place: Workspace) -> None:
    app = place.root / "packages" / "app"
    app.mkdir(parents=True)
    (place.root / "node_modules").symlink_to(NODE)
    (app / "tsconfig.json").write_text('{"compilerOptions": {"strict": true}, "include": ["*.ts"]}')
    (app / "a.ts").write_text("const n: number = 'text';\nexport { n };\n")
    (place.root / "loose.ts").write_text("const n: number = 'text';\n")
    result = await ask(place, ["."])
    assert states(result) == {"tsc": "fresh"}
    assert "packages/app/a.ts:1:7: error TS2322" in result.text and "loose.ts" not in result.text
    (app / "a.ts").write_text("const n: number = 1;\nexport { n };\n")
    assert states(await ask(place, ["packages"])) == {"tsc": "clean"}


@pytest.mark.skipif(not NODE.is_dir(), reason="the extension's packages are not installed (make web)")
async def test_eslint(place: Workspace) -> None:
    (place.root / "node_modules").symlink_to(NODE)
    (place.root / "eslint.config.js").write_text(
        "module.exports = [{ rules: { 'no-undef': 'error', 'no-var': 'warn' } }];\n"
    )
    (place.root / "a.js").write_text("var a = missing;\n")
    result = await ask(place, ["a.js"])
    assert states(result) == {"eslint": "fresh"}, result.text
    assert "a.js:1:9: error no-undef 'missing' is not defined." in result.text
    assert "a.js:1:1: warning no-var" in result.text
    (place.root / "a.js").write_text("let = ;\n")
    assert "error syntax Parsing error" in (await ask(place, ["a.js"])).text


@pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo is not installed")
async def test_cargo(place: Workspace) -> None:
    (place.root / "src").mkdir()
    (place.root / "Cargo.toml").write_text('[package]\nname = "a"\nversion = "0.1.0"\nedition = "2021"\n')
    (place.root / "src" / "lib.rs").write_text('pub fn f() -> u32 { "text" }\n')
    result = await ask(place, ["src/lib.rs"])
    assert states(result) == {"cargo check": "fresh"}, result.text
    assert "src/lib.rs:1:21: error E0308 mismatched types" in result.text
    (place.root / "src" / "lib.rs").write_text("pub fn f() -> u32 { 1 }\n")
    assert states(await ask(place, ["src/lib.rs"])) == {"cargo check": "clean"}


@pytest.mark.skipif(shutil.which("go") is None, reason="go is not installed")
async def test_go_vet(place: Workspace) -> None:
    (place.root / "go.mod").write_text("module example.com/a\n\ngo 1.19\n")
    main = place.root / "main.go"
    main.write_text('package main\n\nimport "fmt"\n\nfunc main() {\n\tfmt.Printf("%d\\n", "text")\n}\n')
    result = await ask(place, ["main.go"])
    assert "main.go:6:2: error fmt.Printf format %d has arg" in result.text
    main.write_text("package main\n\nfunc main() {\n\tmissing()\n}\n")
    assert "main.go:4:2: error undeclared name: missing" in (await ask(place, ["main.go"])).text
    main.write_text("package main\n\nfunc main() {}\n")
    assert states(await ask(place, ["main.go"])) == {"go vet": "clean"}


async def test_what_is_missing_is_said(place: Workspace) -> None:
    (place.root / "a.sh").write_text("echo $x\n")
    (place.root / "b.txt").write_text("text\n")
    if shutil.which("shellcheck") is None:
        assert "Not installed here: shellcheck." in (await ask(place, ["a.sh"])).text
    assert (await ask(place, ["b.txt"])).text == "No checker is known for these 1 files."
    with pytest.raises(InvalidArguments, match=r"There is no gone\.py"):
        await ask(place, ["gone.py"])
    (place.root / "-odd name.py").write_text("import os\n")
    assert "-odd name.py:1:8: warning F401" in (await ask(place, ["-odd name.py"])).text


Parse = Callable[[str], list[Any]]


@pytest.mark.parametrize(
    ("name", "output", "shown"),
    [
        (
            "compiler",
            "# example.com/a\nvet: ./main.go:6:2: undeclared name: missing\n"
            "./b.go:3:1: fmt.Printf format %d has arg",
            [
                "./main.go:6:2: error undeclared name: missing",
                "./b.go:3:1: error fmt.Printf format %d has arg",
            ],
        ),
        (
            "shellcheck",
            '[{"file":"a.sh","line":2,"endLine":2,"column":6,"endColumn":8,"level":"info","code":2086,'
            '"message":"Double quote to prevent globbing.","fix":null}]',
            ["a.sh:2:6: info SC2086 Double quote to prevent globbing."],
        ),
        (
            "mypy",
            '{"file": "a.py", "line": 3, "column": 4, "message": "Incompatible types", "hint": null, '
            '"code": "assignment", "severity": "error"}\nFound 1 error',
            ["a.py:3:5: error assignment Incompatible types"],
        ),
        (
            "tsc",
            "error TS18003: No inputs were found.\nsrc/a(1).ts(2,5): error TS2322: Type 'x'.\n  more",
            [
                "tsconfig.json:0:0: error TS18003 No inputs were found.",
                "src/a(1).ts:2:5: error TS2322 Type 'x'.",
            ],
        ),
    ],
)
def test_printed_forms_are_read(name: str, output: str, shown: list[str]) -> None:
    from tools.diagnostics import parsing

    parse: Parse = getattr(parsing, name)
    assert [finding.shown() for finding in parse(output)] == shown
