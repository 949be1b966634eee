"""The program of the README and of `examples/`, run as a user runs it."""

import subprocess
import sys
from pathlib import Path

from tests.support.scripted_model import ScriptedModel
from tests.support.served import write_repository

ROOT = Path(__file__).parents[1]


def test_the_readme_shows_the_example_as_it_is() -> None:
    example = (ROOT / "examples" / "in_process.py").read_text()
    code = example.split('"""\n', 2)[-1].strip()
    assert code in (ROOT / "README.md").read_text()
    lines = [line for line in code.splitlines() if line.strip() and not line.startswith(("import", "from"))]
    assert len(lines) <= 10


def test_ten_lines_of_python_run_the_agent(tmp_path: Path) -> None:
    write_repository(tmp_path / "repo", {"hello.py": "print('helo')\n"})
    edit = {"name": "edit", "arguments": {"path": "hello.py", "edits": [{"old": "helo", "new": "hello"}]}}
    with ScriptedModel([{"text": "Fixing it. ", "calls": [edit]}, {"text": "Done."}]) as model:
        ran = subprocess.run(
            [
                sys.executable,
                str(ROOT / "examples" / "in_process.py"),
                str(tmp_path / "repo"),
                "openai:m",
                "fix",
            ],
            env={
                "PATH": "/usr/bin:/bin",
                "OPENAI_BASE_URL": model.base_url,
                "OPENAI_API_KEY": "k",
                "HOME": str(tmp_path),
            },
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert ran.returncode == 0, ran.stderr
    assert "Fixing it." in ran.stdout and "Done." in ran.stdout
    assert "+print('hello')" in ran.stdout
    assert (tmp_path / "repo" / "hello.py").read_text() == "print('hello')\n"


def test_the_example_is_typed() -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "pyright", "--level", "error", "examples"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert checked.returncode == 0, checked.stdout
