"""Which server a client talks to: a named one, the running one, or a private one of its own."""

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from server import places
from server.discovery import find_server
from server.failure import CommandFailed, Unavailable, Usage
from server.terminal.lines import warn

STOP_S = 10.0


@dataclass(frozen=True, slots=True)
class Host:
    """A server that answers. `private` = started by this client, which stops it."""

    url: str
    token: str
    private: bool = False

    @property
    def socket(self) -> str:
        """Address of the ACP WebSocket."""
        return self.url.replace("http", "ws", 1) + "/acp"

    def get(self, path: str) -> Any:
        """The JSON of one REST path. Raises `CommandFailed` with the server's own words."""
        return self._call("GET", path)

    def post(self, path: str) -> Any:
        return self._call("POST", path)

    def delete(self, path: str) -> Any:
        return self._call("DELETE", path)

    def _call(self, method: str, path: str) -> Any:
        request = urllib.request.Request(self.url + path, method=method)
        request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with _direct.open(request, timeout=30) as answer:
                body = answer.read()
        except urllib.error.HTTPError as error:
            if error.code == 401:
                raise Usage(
                    f"the server at {self.url} does not accept the token; check ETUDE_TOKEN"
                ) from error
            raise CommandFailed(
                f"the server at {self.url} refused {method} {path}: {_reason(error)}"
            ) from error
        except OSError as error:
            raise CommandFailed(
                f"the server at {self.url} does not answer ({error}); does it run?"
            ) from error
        return json.loads(body) if body else None


_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Loopback is never reached through a proxy."""


def _reason(error: urllib.error.HTTPError) -> str:
    return f"{error.code} {detail_of(error.read()) or error.reason}"


def detail_of(body: bytes | bytearray | None) -> str:
    """What the server says of a refusal, in its own words; empty where it says nothing."""
    try:
        detail = json.loads(body or b"{}").get("detail")
    except (ValueError, AttributeError):
        return ""
    return str(detail or "")


def running() -> Host | None:
    """The server that `server.json` names, if it lives and answers."""
    found = find_server()
    return Host(found.url.rstrip("/"), found.token) if found else None


def named() -> Host | None:
    """The server of `ETUDE_SERVER` and `ETUDE_TOKEN`."""
    url = os.environ.get("ETUDE_SERVER")
    if not url:
        return None
    if not url.startswith(("http://", "https://")):
        raise Usage(f"ETUDE_SERVER is {url!r}; expected an address such as http://127.0.0.1:4747")
    token = os.environ.get("ETUDE_TOKEN")
    if not token:
        raise Usage(
            "ETUDE_SERVER is set but ETUDE_TOKEN is not; set it to a token of that server "
            "(`etude token add NAME` on its machine makes one)"
        )
    return Host(url.rstrip("/"), token)


@contextmanager
def a_server(workspace: Path, flags: list[str]) -> Iterator[Host]:
    """The server to use: named by the environment, running, or a private one for as long as the block lasts.

    `flags` configure a private server only.
    """
    host = named() or running()
    if host is not None:
        yield host
        return
    process = _start(workspace, flags)
    try:
        yield _ready(process)
    finally:
        _stop(process)


def _start(workspace: Path, flags: list[str]) -> "subprocess.Popen[bytes]":
    log = places.data_dir() / "private-server.log"
    try:
        with log.open("wb") as errors:
            return subprocess.Popen(
                [*places.program(), "serve", str(workspace), "--private", "--port", "0", "--json", *flags],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=places.data_dir(),
                start_new_session=True,  # Ctrl-C cancels our turn, not the server
            )
    except OSError as error:
        raise Unavailable(f"cannot start a server in {places.data_dir()}: {error}") from error


def _ready(process: "subprocess.Popen[bytes]") -> Host:
    """The line that says it is ready; lines before it say what takes so long."""
    while line := _stream(process.stdout).readline():
        try:
            told = json.loads(line)
            if "progress" in told:
                warn(told["progress"])
                continue
            return Host(told["url"].rstrip("/"), told["token"], private=True)
        except (ValueError, KeyError, TypeError):
            break
    raise _failure(process.wait(STOP_S))


def _failure(code: int) -> CommandFailed:
    log = places.data_dir() / "private-server.log"
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    why = lines[-1].removeprefix("etude: ") if lines else f"it ended with status {code} and said nothing"
    kind: type[CommandFailed] = {2: Usage, 3: Unavailable}.get(code, CommandFailed)
    return kind(f"a server could not be started: {why}" if kind is CommandFailed else why)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    _stream(process.stdin).close()  # a private server ends with its client, however that ends
    _stream(process.stdout).close()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _stream(stream: "IO[bytes] | None") -> "IO[bytes]":
    if stream is None:
        raise RuntimeError("the private server was started without pipes")
    return stream
