"""An editor's unsaved text: seen by reads, written through by edits, never overwritten on disk."""

import json
from pathlib import Path
from typing import Any

import pytest

from server.acp.editor import editor_context, relative
from tests.support.acp import AcpClient

GO = [{"type": "text", "text": "go"}]
UNSAVED = "def greet():\n    return 'helo'\n\n# not saved yet\n"
READ = {"name": "read", "arguments": {"path": "hello.py"}}
EDIT = {"name": "edit", "arguments": {"path": "hello.py", "edits": [{"old": "'helo'", "new": "'hello'"}]}}


class Editor(AcpClient):
    """A client with files: `text` is what it shows of every file."""

    def __init__(self, server: Any, token: str, *, text: str | None, writes: bool = True) -> None:
        super().__init__(server.url, token, etude=False)
        self.shown, self.writes = text, writes
        self.calls: list[tuple[str, dict[str, Any]]] = []

    async def call(self, method: str, timeout: float = 60, **params: Any) -> Any:
        if method == "initialize":
            params["clientCapabilities"] = {"fs": {"readTextFile": True, "writeTextFile": self.writes}}
        return await super().call(method, timeout, **params)

    async def _answer(self, message: dict[str, Any]) -> None:
        method, params = message["method"], message["params"]
        if not method.startswith("fs/"):
            await super()._answer(message)
            return
        self.calls.append((method, params))
        answer: dict[str, Any] = {"result": {}}
        if method == "fs/write_text_file":
            self.shown = params["content"]
        elif self.shown is None:
            answer = {"error": {"code": -32002, "message": "no such file"}}
        else:
            answer = {"result": {"content": self.shown}}
        await self.socket.send(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}))


def results(model: Any) -> list[str]:
    return [item["content"] for item in model.requests[-1]["messages"] if item["role"] == "tool"]


async def run(client: AcpClient, server: Any, **params: Any) -> None:
    session = await client.new_session(server.workspace)
    await client.call("session/prompt", sessionId=session, prompt=GO, **params)


async def test_a_read_sees_the_text_of_the_editor(serve: Any) -> None:
    server, model = await serve([{"calls": [READ]}, "Done."])
    async with Editor(server, server.token, text=UNSAVED) as editor:
        await run(editor, server)
        assert "# not saved yet" in results(model)[0]
        assert editor.calls[0][1]["path"] == str(server.workspace / "hello.py")
        assert "not saved" not in (server.workspace / "hello.py").read_text()


async def test_an_edit_of_an_unsaved_file_goes_through_the_editor(serve: Any) -> None:
    server, _ = await serve([{"calls": [READ]}, {"calls": [EDIT]}, "Done."])
    async with Editor(server, server.token, text=UNSAVED) as editor:
        await run(editor, server)
        assert editor.shown == UNSAVED.replace("helo", "hello")
        assert (server.workspace / "hello.py").read_text().count("'helo'") == 1


async def test_an_edit_of_a_saved_file_goes_to_disk(serve: Any) -> None:
    server, _ = await serve([{"calls": [READ]}, {"calls": [EDIT]}, "Done."])
    async with Editor(server, server.token, text="def greet():\n    return 'helo'\n") as editor:
        await run(editor, server)
        assert "'hello'" in (server.workspace / "hello.py").read_text()
        assert {method for method, _ in editor.calls} == {"fs/read_text_file"}


async def test_an_editor_that_cannot_write_is_never_overtaken_on_disk(serve: Any) -> None:
    server, model = await serve([{"calls": [READ]}, {"calls": [EDIT]}, "Done."])
    async with Editor(server, server.token, text=UNSAVED, writes=False) as editor:
        await run(editor, server)
        assert "unsaved changes" in results(model)[1]
        assert (server.workspace / "hello.py").read_text().count("'helo'") == 1


async def test_an_editor_that_does_not_know_the_file_changes_nothing(serve: Any) -> None:
    server, model = await serve([{"calls": [READ]}, "Done."])
    async with Editor(server, server.token, text=None) as editor:
        await run(editor, server)
        assert "helo" in results(model)[0]


async def test_a_name_that_no_file_can_have_is_refused_by_the_tool(serve: Any) -> None:
    names = ["y" * 300, "x/" * 3000 + "y", "hello.py/x", "a\x00b"]
    calls = [{"name": "read", "arguments": {"path": name}} for name in names]
    server, model = await serve([{"calls": calls}, "Done."])
    async with Editor(server, server.token, text=UNSAVED) as editor:
        await run(editor, server)
        assert len(results(model)) == 4 and not any("unexpected" in text for text in results(model))


async def test_the_open_files_of_a_prompt_are_seen_and_their_text_is_not_in_the_context(serve: Any) -> None:
    server, model = await serve([{"calls": [READ]}, "Done."])
    opened = {"path": str(server.workspace / "hello.py"), "dirty": True, "text": UNSAVED, "version": 4}
    meta = {"etude": {"editor": {"activeFile": "hello.py", "openFiles": [opened]}}}
    async with server.client() as client:
        await run(client, server, _meta=meta)
        assert "# not saved yet" in results(model)[0]
        prompt = next(item for item in model.requests[0]["messages"] if item["role"] == "user")
        assert "active file: hello.py" in prompt["content"]
        assert "not saved" not in prompt["content"]


@pytest.mark.parametrize(
    "editor", [None, 5, "x", [], {"openFiles": 5}, {"openFiles": [5, None, {"dirty": True}]}]
)
async def test_an_absurd_editor_context_harms_nothing(serve: Any, editor: Any) -> None:
    server, model = await serve(["Done."])
    async with server.client() as client:
        await run(client, server, _meta={"etude": {"editor": editor}})
        assert client.text() == "Done." and len(model.requests) == 1


def test_the_log_keeps_what_has_the_expected_shape_and_no_text_of_open_files() -> None:
    given = {
        "activeFile": "a.py",
        "cursor": {"line": 1, "nested": {"deep": []}},
        "selection": {"path": "a.py", "start": 1, "end": 2, "text": "x = 1"},
        "openFiles": [{"path": "a", "text": "secret"}, "b", 5],
        "recentFiles": {"path": "a"},
        "diagnostics": [{"path": "a", "line": 3, "message": "no"}, "x"],
        "unknown": 1,
    }
    assert editor_context(given) == {
        "activeFile": "a.py",
        "cursor": {"line": 1},
        "selection": [{"path": "a.py", "start": 1, "end": 2, "text": "x = 1"}],
        "openFiles": [{"path": "a"}, {"path": "b"}],
        "diagnostics": [{"path": "a", "line": 3, "message": "no"}],
    }
    assert editor_context("x") is None
    assert editor_context({}) is None


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/w/a.py", "a.py"),
        ("/w/deep/a%20b.py", "deep/a%20b.py"),
        ("file:///w/deep/a%20b.py", "deep/a b.py"),
        ("a.py", "a.py"),
        ("/elsewhere/a.py", None),
        ("/w/../etc/passwd", None),
        ("../a.py", None),
        ("", None),
        (5, None),
    ],
)
def test_paths_of_clients_are_relative_to_the_workspace(path: Any, expected: str | None) -> None:
    assert relative(str(Path("/w")), path) == expected
