"""Rules: made by "always", kept for a person and workspace, revoked in open sessions at once."""

import asyncio
import json
import os
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from server.settings import Settings
from tests.support.acp import AcpClient, allow
from tests.support.scripted_model import ScriptedModel
from tests.support.served import ETUDE, Served

GO = [{"type": "text", "text": "go"}]
COMPILE = "python3 -m compileall hello.py"
RULE = "shell:python3 -m compileall"


def shell(command: str) -> dict[str, Any]:
    return {"calls": [{"name": "shell", "arguments": {"command": command}}]}


class Asked:
    """Answers each question alike, and keeps them."""

    def __init__(self, kind: str = "allow_always") -> None:
        self.requests: list[dict[str, Any]] = []
        self._answer = allow(kind)

    def __call__(self, params: dict[str, Any]) -> Any:
        self.requests.append(params)
        return self._answer(params)


def etude(server: Served, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ETUDE), *arguments], env=server.env, capture_output=True, text=True, check=check, timeout=60
    )


def rules(server: Served, *arguments: str) -> list[dict[str, Any]]:
    listed = etude(server, "rules", "list", "--json", *arguments)
    return [json.loads(line) for line in listed.stdout.splitlines()]


async def turn(client: AcpClient, server: Served) -> str:
    session = await client.new_session(server.workspace)
    assert (await client.call("session/prompt", sessionId=session, prompt=GO))["stopReason"] == "end_turn"
    return session


@pytest.mark.case("agent-23")
async def test_always_holds_in_the_next_session_and_after_a_restart_until_it_is_revoked() -> None:
    script = [shell(f"{COMPILE} | tail -1"), "done", shell(COMPILE), "done", shell(COMPILE), "done",
              shell(COMPILE), "done"]  # fmt: skip
    with ScriptedModel(script) as model, Served(model_url=model.base_url) as server:
        asked = Asked()
        async with server.client(permission=asked) as client:
            first = await turn(client, server)
            [request] = asked.requests
            always = next(item for item in request["options"] if item["kind"] == "allow_always")
            assert always["name"] == "Always allow `python3 -m compileall`"
            assert "not known to only read" in request["_meta"]["etude"]["reason"]
            verdicts = [part["verdict"] for part in request["_meta"]["etude"]["parts"]]
            assert verdicts == ["ask", "allow"]
            await turn(client, server)
            assert len(asked.requests) == 1
        server.stop()
        listed = rules(server)
        assert [(row["rule"], row["workspace"], row["sessions"]) for row in listed] == [
            (RULE, str(server.workspace), [first])
        ]
        rebuilt = json.loads(etude(server, "store", "rebuild", "--json").stdout)
        assert rebuilt["rules"] == 1
        assert rules(server) == listed
        assert rules(server, "--workspace", str(server.home)) == []
        server.start()
        async with server.client(permission=asked) as client:
            await turn(client, server)
            assert len(asked.requests) == 1
            assert rules(server) == listed
            done = etude(server, "rules", "revoke", listed[0]["id"][:6], "--json")
            assert json.loads(done.stdout) == {"id": listed[0]["id"], "revoked": True}
            await turn(client, server)
            assert len(asked.requests) == 2
        assert etude(server, "rules", "revoke", "zzz", check=False).returncode == 1
        assert etude(server, "rules", "revoke", check=False).returncode == 2


async def test_a_revocation_reaches_a_session_that_is_open() -> None:
    script = [shell(COMPILE), "done", shell(COMPILE), "done", shell(COMPILE), "done"]
    with ScriptedModel(script) as model, Served(model_url=model.base_url) as server:
        asked = Asked()
        async with server.client(permission=asked) as client:
            session = await turn(client, server)
            await client.call("session/prompt", sessionId=session, prompt=GO)
            assert len(asked.requests) == 1
            [rule] = rules(server)
            etude(server, "rules", "revoke", rule["id"])
            assert rules(server) == []
            await client.call("session/prompt", sessionId=session, prompt=GO)
            assert len(asked.requests) == 2
        events = await asyncio.to_thread(server.events, session)
        assert [e["data"]["revoked"] for e in events if e["type"] == "config.changed"] == [[RULE]]
        with pytest.raises(urllib.error.HTTPError, match="404"):
            await asyncio.to_thread(delete, server, "/api/rules/0123")


async def test_the_configuration_allows_and_forbids_and_a_workspace_only_forbids(tmp_path: Path) -> None:
    script = [shell("python3 --help | head -1"), shell("mkdir made"), shell("touch made/x"), "done"]
    config = tmp_path / "user.toml"
    config.write_text('[approvals]\nallow = ["python3"]\ndeny = ["touch"]\n')
    files = {"hello.py": "", "etude.toml": '[approvals]\nallow = ["touch"]\ndeny = ["mkdir"]\n'}
    env = {"ETUDE_CONFIG": str(config)}
    with ScriptedModel(script) as model, Served(model_url=model.base_url, files=files, env=env) as server:
        asked = Asked("allow_once")
        async with server.client(permission=asked) as client:
            session = await turn(client, server)
        assert asked.requests == []
        events = await asyncio.to_thread(server.events, session)
        results = [event["data"]["text"] for event in events if event["type"] == "tool.result"]
        assert "exit 0" in results[0]
        assert all("forbidden by your configuration" in text for text in results[1:])
        assert not (server.workspace / "made").exists()


def test_a_workspace_adds_to_what_is_forbidden_and_never_to_what_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, root = tmp_path / "user.toml", tmp_path / "repository"
    root.mkdir()
    config.write_text('[approvals]\nallow = ["pytest", "git *"]\ndeny = ["git push"]\n')
    (root / "etude.toml").write_text('[approvals]\nallow = ["rm"]\ndeny = ["curl"]\n')
    monkeypatch.setenv("ETUDE_CONFIG", str(config))
    settings = Settings.load({}, {}, root)
    assert settings.approvals.allow == ("pytest", "git *")
    assert settings.approvals.deny == ("git push", "curl")
    assert any("approvals.allow" in warning for warning in settings.warnings)
    config.write_text("[approvals]\nallow = ['git \"']\n")
    with pytest.raises(Exception, match=r"approvals\.allow"):
        Settings.load({}, {}, None)


def delete(server: Served, path: str) -> None:
    request = urllib.request.Request(server.url + path, method="DELETE")
    request.add_header("Authorization", f"Bearer {server.token}")
    with urllib.request.urlopen(request, timeout=30):
        raise AssertionError(os.fspath(server.workspace))
