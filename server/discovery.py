"""How clients on this machine find the one server: `server.json` in the data folder."""

import json
import os
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path

from server.places import server_file
from server.private import write_private

HEALTH_S = 5.0


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """A running server. `started` is seconds UTC."""

    url: str
    token: str
    pid: int
    started: float
    version: str


def announce(info: ServerInfo, path: Path | None = None) -> ServerInfo | None:
    """Write `server.json` (mode 0600), whole or not at all. Returns the living server that stood there."""
    path = path or server_file()
    before = read(path)
    write_private(path, json.dumps(asdict(info)).encode())
    return before if before is not None and before.pid != info.pid and _alive(before.pid) else None


def withdraw(info: ServerInfo, path: Path | None = None, before: ServerInfo | None = None) -> None:
    """Remove `server.json`, if it is still ours; or give it back to the server that it named `before` us."""
    path = path or server_file()
    known = read(path)
    if known is None or (known.pid, known.url) != (info.pid, info.url):
        return
    if before is not None and _alive(before.pid):
        announce(before, path)
    else:
        path.unlink(missing_ok=True)


def read(path: Path | None = None) -> ServerInfo | None:
    """What `server.json` says; the process may be dead. None: no file, or not one of ours."""
    try:
        fields = json.loads((path or server_file()).read_text("utf-8"))
        return ServerInfo(**{name: fields[name] for name in ("url", "token", "pid", "started", "version")})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def find_server() -> ServerInfo | None:
    """The server of `server.json`, if its process lives and it answers; one that died left its file."""
    info = read()
    return info if info is not None and _alive(info.pid) and _healthy(info.url) else None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it lives, as another user
    return True


def _healthy(url: str) -> bool:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"{url.rstrip('/')}/healthz", timeout=HEALTH_S) as answer:
            return answer.status == 200
    except (OSError, ValueError):
        return False
