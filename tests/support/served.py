"""A running `etude serve` on a scratch repository, as a user starts it: its own process, home and data."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tests.support.acp import AcpClient

ETUDE = Path(sys.executable).parent / "etude"


class Served:
    """`with Served(model_url=…) as server: …`. `kill()` and `start()` stand for a crash and a restart.

    `files` are written to the workspace and committed. `arguments` go to `etude serve`.
    """

    def __init__(
        self,
        *arguments: str,
        model_url: str | None = None,
        model: str = "openai:scripted",
        files: Mapping[str, str | bytes] | None = None,
        workspace: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="etude-test-")).resolve()
        self.home, self.data = self.dir / "home", self.dir / "data"
        self.home.mkdir()
        self.arguments, self.model = arguments, model
        self.workspace = workspace or self.dir / "workspace"
        if workspace is None:
            write_repository(self.workspace, files or {"hello.py": "def greet():\n    return 'helo'\n"})
        self.env = {
            **{key: value for key, value in os.environ.items() if not key.startswith("ETUDE_")},
            "HOME": str(self.home),
            "ETUDE_DATA": str(self.data),
            "OPENAI_API_KEY": "sk-scripted",
            **({"OPENAI_BASE_URL": model_url} if model_url else {}),
            **(env or {}),
        }
        self.process: subprocess.Popen[str] | None = None
        self.info: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        command = [str(ETUDE), "serve", str(self.workspace), "--port", "0", "--model", self.model]
        with (self.dir / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--no-open", "--json", *self.arguments],
                env=self.env,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the server did not start:\n{self.log()}")
        self.info = json.loads(line)

    @property
    def url(self) -> str:
        return self.info["url"].split("#")[0].rstrip("/")

    @property
    def token(self) -> str:
        return self.info["token"]

    def log(self) -> str:
        return (self.dir / "server.log").read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL the server: nothing of it gets a chance to clean up."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def stop(self, timeout: float = 15) -> int:
        """SIGTERM, and wait; its exit code."""
        assert self.process is not None
        self.process.terminate()
        code = self.process.wait(timeout)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            try:
                self.stop()
            except subprocess.TimeoutExpired:
                self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)

    def client(self, **options: Any) -> AcpClient:
        return AcpClient(self.url, self.token, **options)

    def get(self, path: str) -> Any:
        """The JSON answer of a REST path."""
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def events(self, session: str) -> list[dict[str, Any]]:
        """Every stored event of a session, over REST."""
        found: list[dict[str, Any]] = []
        while page := self.get(
            f"/api/sessions/{session}/events?after={found[-1]['seq'] if found else 0}&limit=1000"
        )["events"]:
            found += page
        return found


def write_repository(path: Path, files: Mapping[str, str | bytes]) -> None:
    """A git repository with these files committed."""
    path.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    author = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*author, "commit", "-qm", "start", "--allow-empty"]):
        subprocess.run(["git", *command], cwd=path, check=True, capture_output=True)
