"""`etude serve`: what it says, what it leaves behind, how it ends."""

import json
import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.scripted_model import ScriptedModel
from tests.support.served import ETUDE, Served


def test_server_json_lives_as_long_as_the_server() -> None:
    with ScriptedModel([]) as model, Served(model_url=model.base_url) as server:
        file = server.data / "server.json"
        known = json.loads(file.read_text())
        assert file.stat().st_mode & 0o777 == 0o600
        assert known["url"] == server.url
        assert known["token"] == server.token
        assert known["pid"] == server.info["pid"]
        assert known["started"] > 0
        assert known["version"]
        assert set(server.info) == {"url", "token", "port", "pid"}
        assert server.info["url"].endswith(f":{server.info['port']}")
        assert server.stop() == 0
        assert not file.exists()


@contextmanager
def serve(tmp_path: Path, *arguments: str, **env: str) -> "Iterator[subprocess.Popen[str]]":
    """A server with an empty home, killed if the test has not ended it."""
    workspace = tmp_path / "workspace"
    workspace.mkdir(exist_ok=True)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ETUDE_", "OPENAI_"))}
    with subprocess.Popen(
        [ETUDE, "serve", "--port", "0", *arguments],
        cwd=workspace,
        env={**kept, "HOME": str(tmp_path), "ETUDE_DATA": str(tmp_path / "data"), **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_the_printed_link_works_once(tmp_path: Path) -> None:
    with serve(tmp_path, "--no-open", "--model", "openai:x", OPENAI_API_KEY="sk-x") as process:
        assert process.stdout is not None
        printed = ""
        while "#code=" not in printed:
            line = process.stdout.readline()
            assert line, process.communicate()[1]
            printed += line
        found = re.search(r"(http://127\.0\.0\.1:\d+)/#code=(\S+)", printed)
        assert found is not None
        url, code = found.groups()
        body = json.dumps({"code": code}).encode()
        request = urllib.request.Request(f"{url}/api/token", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            token = json.load(answer)["token"]
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=10)
        refused.value.close()
        assert refused.value.code == 401
        page = urllib.request.Request(f"{url}/api/server", headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(page, timeout=10) as answer:
            assert json.load(answer)["workspaces"] == [str(tmp_path / "workspace")]
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


def test_a_browser_is_opened_where_there_is_a_display(tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    browser.chmod(0o755)
    env = {"DISPLAY": ":99", "BROWSER": str(browser), "OPENAI_API_KEY": "sk-x"}
    with serve(tmp_path, "--json", "--model", "openai:x", **env) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        opened, deadline = tmp_path / "opened", time.monotonic() + 20
        while not (opened.exists() and opened.read_text()) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.terminate()
        process.wait(20)
    assert opened.read_text().startswith(f"{url}/#code=")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["nowhere"], 2, "no folder"),
        (["/"], 2, "root of the file system"),
        (["--model", "nosuch"], 2, "nosuch"),
        (["--db", "mysql://x/y"], 1, "mysql"),
        (["--db", "sqlite:////proc/nowhere/x.db"], 1, "/proc/nowhere"),
        (["--port", "99999"], 2, "65535"),
        (["--host", "192.0.2.1"], 1, "192.0.2.1"),
    ],
)
def test_what_cannot_be_served_is_said(tmp_path: Path, arguments: list[str], code: int, says: str) -> None:
    with serve(tmp_path, "--no-open", *arguments, OPENAI_API_KEY="sk-x") as process:
        _, errors = process.communicate(timeout=30)
    assert process.returncode == code, errors
    assert says in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "data" / "server.json").exists()


def test_a_taken_port_is_said() -> None:
    with ScriptedModel([]) as model, Served(model_url=model.base_url) as server:
        done = subprocess.run(
            [ETUDE, "serve", "--port", str(server.info["port"]), "--model", "openai:x"],
            cwd=server.workspace, env=server.env, capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        assert done.returncode == 1
        assert f"your server runs at {server.url} already" in done.stderr
        link = re.search(r"#code=(\S+)", done.stderr)
        assert link is not None
        trade = urllib.request.Request(
            f"{server.url}/api/token",
            data=json.dumps({"code": link[1]}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(trade) as answer:
            assert json.load(answer)["token"] == server.token
        elsewhere = {**server.env, "ETUDE_DATA": str(server.dir / "other")}
        done = subprocess.run(
            [ETUDE, "serve", "--port", str(server.info["port"]), "--model", "openai:x"],
            cwd=server.workspace, env=elsewhere, capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        assert done.returncode == 1
        assert "choose another with --port" in done.stderr
        assert (server.data / "server.json").exists()


def test_a_second_server_gives_the_first_its_place_back(tmp_path: Path) -> None:
    with ScriptedModel([]) as model, Served(model_url=model.base_url) as first:
        file = first.data / "server.json"
        with Served(model_url=model.base_url, env={"ETUDE_DATA": str(first.data)}) as second:
            assert json.loads(file.read_text())["url"] == second.url
            assert second.stop() == 0
        assert json.loads(file.read_text())["url"] == first.url
        listed = subprocess.run([ETUDE, "doctor", "--json"], env=first.env, capture_output=True, text=True)
        assert f"running at {first.url}" in listed.stdout


def test_a_private_server_ends_with_its_client(tmp_path: Path) -> None:
    """However the client ends: the pipe to its standard input closes."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    env = {
        **os.environ,
        "HOME": str(tmp_path),
        "ETUDE_DATA": str(tmp_path / "data"),
        "OPENAI_API_KEY": "sk-x",
    }
    with subprocess.Popen(
        [ETUDE, "serve", "--private", "--port", "0", "--json", "--model", "openai:x"],
        cwd=workspace, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdin is not None
        assert json.loads(process.stdout.readline())["token"]
        assert not (tmp_path / "data" / "server.json").exists()
        process.stdin.close()
        assert process.wait(20) == 0


def test_it_names_itself_as_it_can_be_typed(tmp_path: Path) -> None:
    """What `make run` installs is not on the `PATH`."""
    configured = {"OPENAI_API_KEY": "sk-x", "ETUDE_MODEL": "openai:x"}
    for path, name in (("/usr/bin:/bin", str(ETUDE)), (f"{ETUDE.parent}:/usr/bin:/bin", "etude")):
        with serve(tmp_path, "--no-open", PATH=path, **configured) as process:
            assert process.stdout is not None
            last = next(line for line in process.stdout if "in a terminal" in line)
            assert f"`{name} chat`" in last
