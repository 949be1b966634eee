"""What the documentation prints works: every command is run, every configuration loads.

A fenced block that begins with ```sh is run literally, as a user with an empty home, in a scratch
repository, with a scripted model as the configured endpoint. Words after `sh` say how:

- `foreground`: its last command stays (a server): wait for its address, stop it at the end of the page
- `checkout`: run it in the source tree instead
- `no-run: REASON`: it cannot be run by a test, and why
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from server.configuration import SettingsError, load
from tests.support.scripted_model import ScriptedModel
from tests.support.served import write_repository

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MARKS = ("foreground", "checkout")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    language: str
    info: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page.name}:{self.line}"

    def has(self, mark: str) -> bool:
        return mark in self.info.partition("no-run:")[0].split()

    @property
    def reason(self) -> str | None:
        """Why it is not run, or None."""
        _, found, reason = self.info.partition("no-run:")
        return reason.strip() if found else None


def blocks(page: Path, language: str) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^```(\w+)([^\n]*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return [
        Block(page, text.count("\n", 0, match.start()) + 1, match[1], match[2].strip(), match[3])
        for match in found
        if match[1] == language
    ]


class User:
    """Somebody who reads a page and types what it says."""

    def __init__(self, folder: Path, model: ScriptedModel) -> None:
        self.repository = folder / "repository"
        write_repository(self.repository, {"hello.py": "def greet():\n    return 'hello'\n"})
        (folder / "home").mkdir()
        kept = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("ETUDE_", "OPENAI_", "XDG_"))
        }
        self.env = {
            **kept,
            "HOME": str(folder / "home"),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "OPENAI_BASE_URL": model.base_url,
            "OPENAI_API_KEY": "sk-scripted",
            "ETUDE_SERVER__PORT": "0",  # the usual port may be somebody's
        }
        self.log = folder / "log"
        self.running: list[tuple[Block, subprocess.Popen[bytes]]] = []

    def type(self, block: Block) -> None:
        """Run a block. Raises `AssertionError` with what it printed when it fails."""
        command = ["bash", "-euo", "pipefail", "-c", block.text]
        cwd = ROOT if block.has("checkout") else self.repository
        if block.has("foreground"):
            self._start(block, command, cwd)
            return
        done = subprocess.run(
            command,
            cwd=cwd,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=110,
        )
        output = done.stdout + done.stderr
        assert done.returncode == 0, f"{block.name} ended with {done.returncode}:\n{block.text}{output}"
        assert "Traceback" not in output, f"{block.name}:\n{output}"

    def _start(self, block: Block, command: list[str], cwd: Path) -> None:
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.running.append((block, process))
        deadline = time.monotonic() + 100
        while "http://" not in (output := self.log.read_text(errors="replace")):
            assert process.poll() is None and time.monotonic() < deadline, (
                f"{block.name} did not start:\n{output}"
            )
            time.sleep(0.1)

    def leave(self) -> None:
        """Press Ctrl-C in every terminal that still runs something."""
        for block, process in self.running:
            os.killpg(process.pid, signal.SIGINT)
            code = process.wait(30)
            assert code in (0, 2, 130, -signal.SIGINT), f"{block.name} ended with {code}"


@pytest.fixture
def user() -> Iterator[User]:
    with (
        tempfile.TemporaryDirectory(prefix="etude-docs-") as folder,
        ScriptedModel(["It says hello."]) as model,
    ):
        user = User(Path(folder).resolve(), model)
        try:
            yield user
        finally:
            for _, process in user.running:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()


@pytest.mark.docs
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_works(page: Path, user: User) -> None:
    for block in blocks(page, "sh"):
        if block.reason is None:
            user.type(block)
    user.leave()


def test_what_is_not_run_says_why() -> None:
    for page in PAGES:
        for block in blocks(page, "sh"):
            marks = block.info.partition("no-run:")[0].split()
            assert set(marks) <= set(MARKS), f"{block.name}: unknown words {marks}"
            assert block.reason is None or len(block.reason.split()) > 3, f"{block.name}: give a reason"


def test_commands_are_in_blocks_that_are_run() -> None:
    """No page hides commands in a block of another name."""
    for page in PAGES:
        for language in ("bash", "shell", "console", "zsh"):
            assert blocks(page, language) == [], f"{page.name}: use ```sh"


def test_every_configuration_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "etude.toml"
    monkeypatch.setenv("ETUDE_CONFIG", str(file))
    monkeypatch.setenv("ETUDE_DATA", str(tmp_path))
    for page in PAGES:
        for block in blocks(page, "toml"):
            file.write_text(block.text)
            try:
                load({}, {}, None)
            except SettingsError as error:
                pytest.fail(f"{block.name}: {error}")


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which does not exist"
