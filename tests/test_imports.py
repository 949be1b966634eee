"""Which room may import which, and what must not be imported before it is needed."""

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

from tests.support.scripted_model import ScriptedModel

ROOT = Path(__file__).resolve().parents[1]
LATE = {"openai", "mcp", "alembic", "tree_sitter", "pygls", "torch", "transformers", "acp", "IPython", "rich"}
"""Heavy packages that a server has no use for until somebody asks for what they do."""

SERVE = """
import atexit, json, sys
import etude
atexit.register(lambda: json.dump(sorted(sys.modules), open(sys.argv.pop(), "w")))
sys.exit(etude.main(sys.argv[1:-1]))
"""


def test_the_arrows_between_rooms() -> None:
    lint = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout


def test_nothing_heavy_is_imported_before_it_is_needed(tmp_path: Path) -> None:
    """Three starts: one migrates the database, one is asked whether it is ready, one answers."""
    workspace, listed = tmp_path / "workspace", tmp_path / "modules.json"
    workspace.mkdir()

    def modules_of(prompt: str) -> set[str]:
        arguments = [
            "serve",
            str(workspace),
            "--port",
            "0",
            "--json",
            "--no-open",
            "--model",
            "openai:scripted",
        ]
        with subprocess.Popen(
            [sys.executable, "-P", "-c", SERVE, *arguments, str(listed)],
            cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True,
        ) as server:  # fmt: skip
            assert server.stdout is not None
            told = json.loads(server.stdout.readline())
            urllib.request.urlopen(told["url"] + "/readyz", timeout=10).close()
            if prompt:
                chat = [sys.executable, str(ROOT / "etude.py"), "chat", prompt, "--workspace", str(workspace)]
                answer = subprocess.run(chat, env=env, capture_output=True, text=True, timeout=60)
                assert "Good morning." in answer.stdout, answer.stderr
            server.terminate()
            assert server.wait(30) == 0
        return {name.partition(".")[0] for name in json.loads(listed.read_text())}

    with ScriptedModel(["Good morning."]) as model:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("ETUDE_")}
        env = {
            **kept,
            "HOME": str(tmp_path),
            "ETUDE_DATA": str(tmp_path / "data"),
            "OPENAI_BASE_URL": model.base_url,
            "OPENAI_API_KEY": "sk-scripted",
        }
        assert modules_of("") & LATE == {"alembic"}
        ready = modules_of("")
        assert {"fastapi", "sqlalchemy"} <= ready
        assert ready & LATE == set()
        assert modules_of("hello") & LATE == {"openai"}


def test_commands_of_a_terminal_import_no_server() -> None:
    """`chat`, `run` and `acp` are thin: they start while the server does."""
    code = (
        "import sys, json; import server.commands.chat, server.commands.run, server.commands.acp; "
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert loaded & ({"fastapi", "uvicorn", "sqlalchemy", "pydantic", "asyncpg"} | LATE) == set()
