"""Planted secrets against a real server: in no database, log, socket or request; files keep them."""

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import orjson
import pytest
import zstandard

from tests.support.acp import AcpClient, RpcFailure
from tests.support.planted import Planted, planted
from tests.support.scripted_model import ScriptedModel, Turn
from tests.support.served import Served
from tools.redaction import PATTERN

IN_FILES, IN_PROMPT, IN_EDITOR, IN_SHELL = planted(1), planted(2), planted(3), planted(4)
BARE = "zQ4#mVx8!pLw"
"""A value that nothing but its name in `.env` tells from a word."""
SERVER_TOKEN = "b7Kq2ZxN8vRt5LmW1cYp"
INSTRUCTED, DIRTY, NAMED = planted(5)[0].values[0], planted(6)[0].values[0], planted(7)[0].values[0]
MCP = {
    "name": "tests",
    "command": sys.executable,
    "args": [str(Path(__file__).parents[1] / "support" / "mcp_server.py")],
    "env": [{"name": "SEEN", "value": planted(8)[0].values[0]}],
}
Body = dict[str, Any]
ALL = "cat conf/*.txt"


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def conf(index: int) -> str:
    return f"conf/{index:02}.txt"


def content(one: Planted) -> str:
    return f"# {one.name}\nbefore = 1\n{one.text}\nafter = 2\n"


def files() -> dict[str, str | bytes]:
    return {
        ".env": f"DEBUG=true\nPAYMENT_PIN_SECRET={BARE}\n",
        "notes.md": f"When the pool hangs, log in with {BARE} and restart it.\n",
        "AGENTS.md": f"Use `curl -H 'PRIVATE-TOKEN: {INSTRUCTED}'`.\n",
        "sub/AGENTS.md": f"Deploy with {INSTRUCTED} too.\n",
        "sub/a.py": "x = 1\n",
        "dirty.txt": "clean\n",
        f"keys/{NAMED}.txt": "named\n",
        "app.py": "import os\n\n\ndef connect():\n    return os.environ['PAYMENT_PIN_SECRET']\n",
        "crlf.ini": f"[db]\r\npassword = {IN_FILES[0].values[0]}\r\nport = 5432\r\n",
        **{conf(index): content(one) for index, one in enumerate(IN_FILES)},
    }


def placeholder_of(body: Body, before: str) -> str:
    """The first placeholder that follows these words in what the model has been sent."""
    text = "\n".join(str(message.get("content") or "") for message in body["messages"])
    found = re.search(re.escape(before) + r"[^\n]*?(\[secret:[^\]]+\])", text)
    assert found, f"no placeholder behind {before!r}"
    return found[1]


def edits(body: Body) -> list[dict[str, Any]]:
    github, bare = placeholder_of(body, "3\tGITHUB_TOKEN="), placeholder_of(body, "2\tPAYMENT_PIN_SECRET=")
    password = placeholder_of(body, "2\tpassword = ")
    patch = (
        f"*** Begin Patch\n*** Update File: {conf(0)}\n@@\n-after = 2\n+after = 3\n"
        "*** Update File: .env\n@@\n"
        f"-PAYMENT_PIN_SECRET={bare}\n+PAYMENT_PIN_SECRET={bare}\n+COPY={github}\n*** End Patch\n"
    )
    return [
        call(
            "edit",
            path=conf(0),
            edits=[
                {"old": f"before = 1\nGITHUB_TOKEN={github}", "new": f"before = 7\nGITHUB_TOKEN={github}"}
            ],
        ),
        call(
            "edit",
            path="crlf.ini",
            edits=[{"old": f"password = {password}", "new": f"password = {password}\ntimeout = 9"}],
        ),
        call("write", path="new/settings.ini", content=f"[pay]\npin = {bare}\ntoken = {github}\n"),
        call("apply_patch", patch=patch),
        call("shell", command=f"echo {github}"),
        call(
            "edit", path="app.py", edits=[{"old": "import os", "new": "K = '[secret:github-token:00000000]'"}]
        ),
    ]


def script() -> list[Any]:
    reads = [call("read", path=conf(index)) for index in range(len(IN_FILES))]
    return [
        {"text": "Reading.", "calls": reads[:30]},
        {
            "calls": [
                *reads[30:],
                *(call("read", path=path) for path in (".env", "notes.md", "crlf.ini", "sub/a.py")),
            ]
        },
        {
            "calls": [
                call("grep", pattern=".", path="conf", limit=500),
                call("grep", pattern="log in|pool", context=2),
            ]
        },
        {"calls": [call("list"), call("glob", pattern="**/*.txt")]},
        {"calls": [call("symbols", query="connect"), call("search", query="payment secret token")]},
        {
            "calls": [
                call("shell", command="cat conf/*.txt notes.md .env"),
                call("shell", command=ALL, tty=True),
            ]
        },
        {"calls": [call("shell", command=f"{ALL}; base64 .env; env; sleep 0.6; {ALL}", background=True)]},
        lambda body: {"calls": [call("shell_read", job=job_of(body), wait_s=3)]},
        {
            "calls": [
                call("shell", command="cat made.txt; cat .env >&2; git diff; seq 1 30000; cat conf/0*.txt")
            ]
        },
        {"calls": [call("diagnostics", paths=["app.py"])]},
        {"calls": [{"name": "mcp__tests__environment", "arguments": {"name": "SEEN"}}]},
        lambda body: {"calls": edits(body)},
        {"calls": [call("shell", command="cat new/settings.ini .env conf/00.txt; exit 3")]},
        {"calls": [call("read", path=f"keys/{IN_FILES[0].values[0]}.txt")]},
        {"text": "Done."},
    ]


def job_of(body: Body) -> str:
    found = re.search(r"\[job (\S+) ", str(body["messages"][-1]["content"]))
    assert found
    return found[1]


def editor() -> dict[str, Any]:
    lines = [one.text for one in IN_EDITOR]
    return {
        "activeFile": "app.py",
        "selection": [{"path": "app.py", "start": 1, "end": 9, "text": "\n".join(lines)}],
        "diagnostics": [
            {"path": "app.py", "line": 3, "severity": "error", "message": f"bad login: {line}"}
            for line in lines
            if "\n" not in line
        ],
        "openFiles": [{"path": "app.py"}],
    }


async def prompt(
    client: AcpClient, session: str, text: str, *, more: Iterable[dict[str, Any]] = (), **meta: Any
) -> Any:
    blocks = [{"type": "text", "text": text}, *more]
    return await client.call(
        "session/prompt", timeout=150, sessionId=session, prompt=blocks, _meta={"etude": meta}
    )


def secrets() -> dict[str, str]:
    """Every value that must be nowhere, with where it was planted."""
    found = {
        BARE: ".env",
        INSTRUCTED: "AGENTS.md",
        DIRTY: "dirty diff",
        NAMED: "file name",
        SERVER_TOKEN: "environment",
    }
    found[planted(8)[0].values[0]] = "environment of an MCP server"
    for where, planted_there in (
        ("file", IN_FILES),
        ("prompt", IN_PROMPT),
        ("editor", IN_EDITOR),
        ("made", IN_SHELL),
    ):
        found |= {value: f"{where}: {one.name}" for one in planted_there for value in one.values}
    return found


def assert_none(where: str, text: bytes) -> None:
    plain = text.decode("utf-8", "replace")
    unescaped = plain.replace("\\/", "/").replace('\\"', '"').replace("\\\\", "\\")
    leaked = [name for value, name in secrets().items() if value in plain or value in unescaped]
    assert not leaked, f"{where} shows {leaked}"


def stored(database: Path) -> Iterable[tuple[str, bytes]]:
    """Every value of every table, unpacked where it is packed; and the raw files."""
    with sqlite3.connect(database) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for row in connection.execute(f'SELECT * FROM "{table}"'):
                for value in row:
                    data = value if isinstance(value, bytes) else str(value).encode()
                    yield table, data
                    if data[:4] == b"\x28\xb5\x2f\xfd":
                        yield table, zstandard.ZstdDecompressor().decompress(data, max_output_size=64 << 20)
    connection.close()
    for file in database.parent.glob(f"{database.name}*"):
        yield file.name, file.read_bytes()


@pytest.mark.timeout(300)
@pytest.mark.case("agent-27", "bench-16")
async def test_planted_secrets_are_nowhere_and_files_keep_them(tmp_path: Path) -> None:
    assert len(IN_FILES) >= 30
    env = {"PARTNER_API_TOKEN": SERVER_TOKEN, "OPENAI_API_KEY": "sk-scripted-Q7w8E9r0T1"}
    asked: list[dict[str, Any]] = []

    def answer(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params)
        option = next(item for item in params["options"] if item["kind"] == "allow_once")
        return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}

    with (
        ScriptedModel(script()) as model,
        Served("--mode", "ask", model_url=model.base_url, files=files(), env=env) as server,
    ):
        root = server.workspace
        (root / "dirty.txt").write_text(f"deploy_token: {DIRTY}\n")
        (root / "made.txt").write_text("\n".join(one.text for one in IN_SHELL))
        truth = {path: (root / path).read_bytes() for path in files()}
        async with server.client(permission=answer) as client:
            session = await client.new_session(root, mcpServers=[MCP])
            attached = {
                "type": "resource",
                "resource": {"uri": "file:///x/a.env", "text": "\n".join(one.text for one in IN_PROMPT)},
            }
            text = f"Use {SERVER_TOKEN} and:\n" + "\n".join(one.text for one in IN_PROMPT)
            result = await prompt(client, session, text, more=[attached], editor=editor())
            assert result["stopReason"] == "end_turn"
            frames = b"\n".join(orjson.dumps(frame.message) for frame in client.frames)
        events = server.events(session)
        results = {
            event["data"]["call_id"]: event["data"] for event in events if event["type"] == "tool.result"
        }
        calls = [
            (event["data"]["name"], results[event["data"]["call_id"]])
            for event in events
            if event["type"] == "tool.call"
        ]
        _assert_calls(calls)
        said = [event["data"]["error"] for event in events if event["type"] == "error"]
        assert said.count("secret_in_generation") == 1  # it typed a value that it had never been shown
        _assert_files(root, truth)
        assert asked
        assert_none("an approval", orjson.dumps(asked))
        assert_none("a socket", frames)
        for request in model.requests:
            assert_none("a request to the model", orjson.dumps(request))
        sent = json.dumps(model.requests[-1]["messages"])
        assert len(set(PATTERN.findall(sent))) >= 60
        assert server.stop() == 0
        database = list(stored(server.data / "etude.db"))
        for place in (frames, orjson.dumps(model.requests), b"".join(data for _, data in database)):
            assert (
                b"When the pool hangs" in place
            )  # what is no secret is there, so these are the right places
        assert_none("the server's log", server.log().encode())
        for table, data in database:
            assert_none(f"the database ({table})", data)
        assert (server.data / "redaction.key").stat().st_mode & 0o777 == 0o600


def _assert_calls(calls: list[tuple[str, dict[str, Any]]]) -> None:
    by_name: dict[str, list[dict[str, Any]]] = {}
    for name, result in calls:
        by_name.setdefault(name, []).append(result)
    assert len(by_name["read"]) >= 40
    assert all("[secret:" in result["text"] for result in by_name["read"][:30])
    assert any("[secret:" in result["text"] for result in by_name["shell_read"])
    assert any("[secret:" in result["text"] for result in by_name["glob"])
    [seen] = by_name["mcp__tests__environment"]
    assert "[secret:token:" in seen["text"]
    refused = [result for result in by_name["shell"] if "commands are never given" in result["text"]]
    assert len(refused) == 1
    unknown = by_name["edit"][-1]
    assert unknown["error"] == "invalid_arguments"
    assert "[secret:github-token:00000000] is no placeholder of this session" in unknown["text"]
    done = [by_name["edit"][0], by_name["edit"][1], by_name["write"][0], by_name["apply_patch"][0]]
    assert not [result["text"] for result in done if result.get("error")]


def _assert_files(root: Path, truth: dict[str, bytes]) -> None:
    github = IN_FILES[0].values[0]
    expected = dict(truth)
    expected[conf(0)] = (
        content(IN_FILES[0]).replace("before = 1", "before = 7").replace("after = 2", "after = 3").encode()
    )
    expected["crlf.ini"] = f"[db]\r\npassword = {github}\r\ntimeout = 9\r\nport = 5432\r\n".encode()
    expected[".env"] = f"DEBUG=true\nPAYMENT_PIN_SECRET={BARE}\nCOPY={github}\n".encode()
    assert {path: (root / path).read_bytes() for path in expected} == expected
    assert (root / "new/settings.ini").read_text() == f"[pay]\npin = {BARE}\ntoken = {github}\n"


@pytest.mark.case("agent-27")
async def test_placeholders_still_stand_for_their_values_after_a_crash() -> None:
    github, other = IN_FILES[0].values[0], IN_PROMPT[0].values[0]
    remembered: dict[str, str] = {}

    def first(body: Body) -> dict[str, Any]:
        remembered["file"] = placeholder_of(body, "1\tGITHUB_TOKEN=")
        remembered["prompt"] = placeholder_of(body, "mine is ")
        return {"text": "ok"}

    def second(body: Body) -> dict[str, Any]:
        edit = [
            {
                "old": f"GITHUB_TOKEN={remembered['file']}",
                "new": f"GITHUB_TOKEN={remembered['file']}\nOTHER=1",
            }
        ]
        return {
            "calls": [
                call("edit", path="a.cfg", edits=edit),
                call("write", path="copy.txt", content=remembered["file"]),
                call("write", path="lost.txt", content=remembered["prompt"]),
            ]
        }

    turns: list[Callable[[Body], Any] | dict[str, Any] | Turn] = [
        {"calls": [call("read", path="a.cfg")]},
        first,
        second,
        {"text": "done"},
    ]
    with (
        ScriptedModel(turns) as model,
        Served(
            "--mode", "full", model_url=model.base_url, files={"a.cfg": f"GITHUB_TOKEN={github}\n"}
        ) as server,
    ):
        async with server.client() as client:
            session = await client.new_session(server.workspace)
            await prompt(client, session, f"mine is {other}")
        server.kill()
        server.start()
        async with server.client() as client:
            await client.call("_etude/attach", sessionId=session, afterSeq=0)
            await prompt(client, session, "go on")
        assert (server.workspace / "a.cfg").read_text() == f"GITHUB_TOKEN={github}\nOTHER=1\n"
        assert (server.workspace / "copy.txt").read_text() == github
        assert not (server.workspace / "lost.txt").exists()
        refused = [event["data"] for event in server.events(session) if event["type"] == "tool.result"][-1]
        assert "is no placeholder of this session" in refused["text"]
        for table, data in stored(server.data / "etude.db"):
            assert github.encode() not in data, table
            assert other.encode() not in data, table
        listed = subprocess.run(
            ["grep", "-rlF", github, str(server.data)], capture_output=True, text=True
        ).stdout
        assert not [line for line in listed.splitlines() if "/snapshots/" not in line]


async def test_errors_of_a_model_are_told_without_secrets() -> None:
    key, echoed = "sk-scripted-Q7w8E9r0T1", IN_FILES[0].values[0]
    turns = [
        Turn(status=401, error={"error": {"message": f"Incorrect API key provided: {key}, not {echoed}"}})
    ] * 8
    with (
        ScriptedModel(turns) as model,
        Served(model_url=model.base_url, env={"OPENAI_API_KEY": key}) as server,
    ):
        async with server.client() as client:
            session = await client.new_session(server.workspace)
            with pytest.raises(RpcFailure, match=r"not \[secret:github-token") as failure:
                await prompt(client, session, "go")
            assert key not in str(failure.value)
            shown = b"".join(orjson.dumps(frame.message) for frame in client.frames).decode()
        server.stop()
        for text in (
            shown,
            server.log(),
            *(data.decode("utf-8", "replace") for _, data in stored(server.data / "etude.db")),
        ):
            assert key not in text
            assert echoed not in text


async def test_errors_of_the_server_are_told_without_secrets() -> None:
    key = "sk-scripted-Q7w8E9r0T1"
    with (
        ScriptedModel([]) as model,
        Served(model_url=model.base_url, env={"OPENAI_API_KEY": key}) as server,
    ):
        async with server.client() as client:
            for method, params in (
                (f"x/{key}", {}),
                ("session/new", {"cwd": f"/no/{key}", "mcpServers": []}),
            ):
                with pytest.raises(RpcFailure) as failure:
                    await client.call(method, **params)
                assert "[secret:" in str(failure.value.error)
                assert key not in str(failure.value.error)
