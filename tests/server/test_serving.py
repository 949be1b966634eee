"""Starting and stopping: what is imported, what is announced, what it costs."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from server import serving
from server.discovery import ServerInfo, announce, find_server, read, withdraw
from tests.support.scripted_model import ScriptedModel
from tests.support.served import Served

LATER = ("openai", "mcp", "alembic", "tree_sitter", "pygls", "torch", "transformers", "acp", "playwright")
"""What must not be imported before it is needed."""


def test_nothing_heavy_is_imported_to_serve(tmp_path: Path) -> None:
    program = (
        "import asyncio, json, sys, time\n"
        "from pathlib import Path\n"
        "from server.app import create_app\n"
        "from server.settings import Settings\n"
        "from server.store import Store\n"
        "from server import serving\n"
        "folder = Path(sys.argv[1])\n"
        "async def main():\n"
        "    store = await Store.open(f'sqlite:///{folder}/etude.db')\n"
        "    app = create_app(Settings(), store, 'token', [folder], tokens_file=folder / 'tokens.json')\n"
        "    bound = serving.listen('127.0.0.1', 0)\n"
        "    def ready(info):\n"
        "        print(json.dumps({'modules': list(sys.modules), 'cpu': time.process_time()}))\n"
        "        server.should_exit = True\n"
        "    server, task = serving.start(app, bound, 'token', ready, public=False)\n"
        "    await task\n"
        "    await store.close()\n"
        "    return 0\n"
        "serving.run(main())\n"
    )
    root = Path(serving.__file__).parents[1]
    done = None
    for _ in range(2):  # the first makes the database, which needs its migrations
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
    assert done is not None
    told = json.loads(done.stdout)
    assert sorted(name for name in LATER if name in told["modules"]) == []


def test_a_port_in_use_is_a_clear_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(serving.CannotListen, match=f"port {port}"):
            serving.listen("127.0.0.1", port)
    with pytest.raises(serving.CannotListen, match="--port"):
        serving.listen("203.0.113.1", 0)


def test_the_announcement_is_private_whole_and_its_own(tmp_path: Path) -> None:
    path = tmp_path / "data" / "server.json"
    info = ServerInfo("http://127.0.0.1:1", "token", os.getpid(), 1.5, "0.1")
    announce(info, path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read(path) == info
    withdraw(ServerInfo("http://127.0.0.1:2", "token", os.getpid(), 1.5, "0.1"), path)
    assert path.exists()
    withdraw(info, path)
    assert os.listdir(path.parent) == []
    withdraw(info, path)
    path.write_text("{}")
    assert read(path) is None


def test_a_server_is_found_while_it_lives_and_stops_cleanly(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedModel(["hello"]) as model, Served(model_url=model.base_url) as server:
        monkeypatch.setenv("ETUDE_DATA", str(server.data))
        found = find_server()
        assert found is not None
        assert (found.url, found.token, found.pid) == (server.url, server.token, server.info["pid"])
        assert server.stop() == 0
        assert find_server() is None
        assert not (server.data / "server.json").exists()
        server.start()
        server.kill()
        assert (server.data / "server.json").exists()
        assert find_server() is None
        assert "Traceback" not in server.log()
