"""`etude sessions`, `store`, `token`, `models`, `config`, `doctor`: with a server and without one."""

import json
import os
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.scripted_model import ScriptedModel
from tests.support.served import ETUDE, Served, write_repository

READ = {"calls": [{"name": "read", "arguments": {"path": "hello.py"}}]}


class User:
    """Somebody with an empty home who types commands in a workspace."""

    def __init__(self, folder: Path, **env: str) -> None:
        self.workspace, self.data = folder / "workspace", folder / "data"
        if not self.workspace.exists():
            write_repository(self.workspace, {"hello.py": "def greet():\n    return 'helo'\n"})
        (folder / "home").mkdir(exist_ok=True)
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("ETUDE_", "OPENAI_"))}
        self.env = {**kept, "HOME": str(folder / "home"), "ETUDE_DATA": str(self.data), **env}

    def types(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [ETUDE, *arguments],
            cwd=self.workspace, env=self.env, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=90,
        )  # fmt: skip

    def lines(self, *arguments: str) -> list[dict[str, Any]]:
        done = self.types(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel([READ, "It greets."], keyed=True) as model:
        yield model


@pytest.fixture
def user(tmp_path: Path, model: ScriptedModel) -> User:
    return User(
        tmp_path, ETUDE_MODEL="openai:scripted", OPENAI_BASE_URL=model.base_url, OPENAI_API_KEY="sk-scripted"
    )


def talk(user: User, text: str) -> str:
    return user.lines("run", text)[0]["sessionId"]


def test_sessions_without_a_server(user: User) -> None:
    assert user.types("sessions", "list").stdout.startswith("no sessions yet")
    first, second = talk(user, "what is this?"), talk(user, "explain hello.py")
    rows = user.lines("sessions", "list")
    assert [row["id"] for row in rows] == [second, first]
    assert rows[0]["workspace"] == str(user.workspace)
    assert [row["id"] for row in user.lines("sessions", "list", "--limit", "1")] == [second]
    assert [row["id"] for row in user.lines("sessions", "list", "--query", "explain")] == [second]
    assert user.lines("sessions", "list", "nowhere") == []
    assert second in (listed := user.types("sessions", "list", ".").stdout)
    assert "explain hello.py" in listed and "untitled" not in listed

    events = user.lines("sessions", "show", first)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["type"] == "turn.ended"
    shown = user.types("sessions", "show", first.lower()).stdout
    assert "› what is this?" in shown
    assert "It greets." in shown

    assert user.types("sessions", "show", first[:2]).returncode == 2  # both begin so
    assert user.types("sessions", "show", "ZZZ").returncode == 1
    assert user.types("sessions", "delete", first).stdout == f"deleted {first}\n"
    assert [row["id"] for row in user.lines("sessions", "list")] == [second]
    gone = user.types("sessions", "show", first)
    assert gone.returncode == 1
    assert "no session" in gone.stderr


def test_results_of_calls_side_by_side_stand_under_their_own_headings(tmp_path: Path) -> None:
    calls = [{"name": "glob", "arguments": {"pattern": name}} for name in ("a*", "b*", "c*")]
    with ScriptedModel([{"calls": calls}, "Done."]) as model:
        user = User(tmp_path, OPENAI_BASE_URL=model.base_url)
        for name in ("a1", "b1", "c1"):
            (user.workspace / name).write_text("x\n")
        shown = user.types("sessions", "show", talk(user, "find them")).stdout.splitlines()
    for number, line in enumerate(shown):
        if line.strip() in ("a1", "b1", "c1"):
            assert shown[number - 1] == f"● Find {line.strip()[0]}*"
    assert sorted(line.strip() for line in shown if line.strip() in ("a1", "b1", "c1")) == ["a1", "b1", "c1"]


def test_sessions_of_a_running_server(model: ScriptedModel, tmp_path: Path) -> None:
    with Served(model_url=model.base_url) as server:
        user = User(tmp_path)
        user.env, user.workspace = server.env, server.workspace
        session = talk(user, "what is this?")
        assert [row["id"] for row in user.lines("sessions", "list")] == [session]
        events = user.lines("sessions", "show", session)
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert user.lines("sessions", "delete", session) == [{"id": session, "deleted": True}]
        assert server.get("/api/sessions")["sessions"] == []


def test_rebuild_gives_the_same_projections(user: User) -> None:
    session = talk(user, "what is this?")
    before = user.lines("sessions", "list")
    counts = user.lines("store", "rebuild")[0]
    assert counts["sessions"] == 1
    assert counts["generations"] == 2
    assert user.lines("sessions", "list") == before
    assert user.lines("sessions", "show", session)[-1]["type"] == "turn.ended"


def test_a_database_of_another_kind_is_named(user: User) -> None:
    (user.workspace / "notes.db").write_text("this is not a database, but long enough to look like one" * 20)
    done = user.types("sessions", "list", "--db", "notes.db")
    assert done.returncode == 1
    assert "notes.db" in done.stderr
    assert "Traceback" not in done.stderr
    mine = user.types("sessions", "list", "--db", "sqlite:///other.db")
    assert mine.returncode == 0
    with sqlite3.connect(user.workspace / "other.db") as database:
        assert database.execute("select count(*) from sessions").fetchone() == (0,)
    database.close()


def test_tokens_open_a_server_until_they_are_removed(model: ScriptedModel, tmp_path: Path) -> None:
    with Served(model_url=model.base_url) as server:
        user = User(tmp_path)
        user.env, user.workspace = dict(server.env), server.workspace
        token = user.lines("token", "add", "ada")[0]["token"]
        assert user.types("token", "add", "ada").returncode == 1
        assert user.types("token", "add", "a/b").returncode == 1
        assert [row["name"] for row in user.lines("token", "list")] == ["ada"]
        assert token not in (server.data / "tokens.json").read_text()
        user.env |= {"ETUDE_SERVER": server.url, "ETUDE_TOKEN": token}
        session = talk(user, "what is this?")
        assert user.lines("sessions", "list")[0]["user_id"] == "ada"
        assert session not in [row["id"] for row in server.get("/api/sessions")["sessions"]]
        assert user.types("token", "remove", "ada").returncode == 0
        assert user.types("chat", "hello").returncode == 2
        del user.env["ETUDE_TOKEN"]
        refused = user.types("chat", "hello")
        assert (refused.returncode, "ETUDE_TOKEN" in refused.stderr) == (2, True)


def test_models_say_which_is_the_default_and_why(tmp_path: Path, model: ScriptedModel) -> None:
    user = User(tmp_path)
    names = {row["name"]: row for row in user.lines("models")}
    assert "local" in names
    user.env |= {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "sk-scripted"}
    default = next(row for row in user.lines("models") if row["default"])
    assert default["name"] == "openai:scripted"
    assert "OPENAI_BASE_URL" in default["reason"]
    user.env |= {"ETUDE_MODELS__BIG__MODEL": "gpt-4o", "ETUDE_MODELS__BIG__PRICE__INPUT": "2"}
    default = next(row for row in user.lines("models") if row["default"])
    assert (default["name"], default["context_window"], default["price"]["input"]) == ("big", 128000, 2.0)
    user.env["ETUDE_MODEL"] = "local"
    assert next(row for row in user.lines("models") if row["default"])["name"] == "local"
    assert "is the default" in user.types("models").stdout


def test_config_shows_sources_and_hides_passwords(tmp_path: Path) -> None:
    user = User(tmp_path, ETUDE_DB="postgresql://etude:secret@db.example/etude")
    (user.workspace / "etude.toml").write_text('[server]\nhost = "0.0.0.0"\n[agent]\nmode = "plan"\n')
    lines = user.lines("config", "show")
    rows = {line["key"]: line for line in lines if "key" in line}
    assert rows["store.url"]["value"] == "postgresql://etude:…@db.example/etude"
    assert rows["store.url"]["source"] == "environment ETUDE_DB"
    assert rows["server.host"] == {"key": "server.host", "value": "127.0.0.1", "source": "default"}
    assert rows["agent.mode"]["value"] == "plan"
    warnings = [line["warning"] for line in lines if "warning" in line]
    assert len(warnings) == 1
    assert "server.host is ignored" in warnings[0]
    for_people = user.types("config", "show")
    assert "server.host is ignored" in for_people.stderr
    assert "secret" not in for_people.stdout
    (own := tmp_path / "own.toml").write_text(
        '[mcp.a]\nurl = "https://me:secret@example.org/mcp"\nheaders = { "X-Key" = "secret" }\n'
        '[mcp.b]\ncommand = "sh"\nenv = { KEY = "secret" }\n'
    )
    user.env["ETUDE_CONFIG"] = str(own)
    for shown in (user.types("config", "show").stdout, user.types("config", "show", "--json").stdout):
        assert "secret" not in shown
        assert "mcp.b.env.KEY" in shown
        assert "https://me:…@example.org/mcp" in shown
    user.env["ETUDE_AGENT__MOED"] = "plan"
    wrong = user.types("config", "show")
    assert wrong.returncode == 2
    assert "did you mean 'agent.mode'?" in wrong.stderr


def test_doctor_finds_what_works(user: User) -> None:
    found = {line["name"]: line for line in user.lines("doctor")}
    assert {"python", "git", "rg", "sandbox", "data folder", "database", "server", "model"} <= set(found)
    assert all(line["state"] in ("ok", "note") for line in found.values())
    assert "openai:scripted" in found["model"]["found"]


def test_doctor_says_what_to_do(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        user = User(
            tmp_path,
            ETUDE_MODEL="openai:x",
            OPENAI_BASE_URL="http://127.0.0.1:9/v1",
            OPENAI_API_KEY="sk-x",
            ETUDE_DB="sqlite:////proc/nowhere/etude.db",
            ETUDE_SERVER__PORT=port,
        )
        done = user.types("doctor", "--json")
    found = {line["name"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 1
    assert found["database"]["state"] == "broken"
    assert found["model"]["state"] == "broken"
    assert "--port 0" in found["server"]["remedy"]
    assert all(line["remedy"] for line in found.values() if line["state"] == "broken")
    people = user.types("doctor").stdout
    assert "✗ database" in people
    assert "→" in people


@pytest.mark.parametrize("limit", ["0", "-1", "99999999999999999999", "x", "²"])
def test_an_absurd_limit_is_named(tmp_path: Path, limit: str) -> None:
    done = User(tmp_path).types("sessions", "list", f"--limit={limit}")
    assert done.returncode == 2
    assert "not a whole number" in done.stderr
