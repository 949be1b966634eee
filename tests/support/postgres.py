"""A PostgreSQL of the tests' own: started for a test session, on a free loopback port and a unix socket.

`ETUDE_TEST_POSTGRES` may give the URL of a running server instead (its user must be allowed to create
databases).
"""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MISSING = (
    "these tests need PostgreSQL: install it (Debian, Ubuntu: apt-get install postgresql; Fedora: dnf "
    "install postgresql-server; macOS: brew install postgresql), or set ETUDE_TEST_POSTGRES to the URL of "
    "a server whose user may create databases"
)

WATCH = '"$@" </dev/null & read -r _; kill -INT $!; wait $!'
"""Runs a command until standard input ends: with the tests, however they end."""


@contextmanager
def postgres_server() -> Iterator[str]:
    """The URL of a server's maintenance database; ends the server afterwards."""
    if url := os.environ.get("ETUDE_TEST_POSTGRES"):
        yield url
        return
    binaries = _binaries()
    folder = Path(tempfile.mkdtemp(prefix="etude-pg-", dir="/tmp"))
    try:
        run = _as_ordinary_user(folder)
        data = folder / "data"
        subprocess.run(
            [*run, binaries / "initdb", "-D", data, "-U", "etude", "-A", "trust", "-E", "UTF8", "--no-sync"],
            check=True,
            stdout=subprocess.DEVNULL,
            env=_environment(),
        )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        settings = ("listen_addresses=127.0.0.1", "fsync=off", "max_connections=200")
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(
                [
                    *("sh", "-c", WATCH, "sh", *run, binaries / "postgres", "-D", data, "-k", folder),
                    *("-p", str(port)),
                    *(word for setting in settings for word in ("-c", setting)),
                ],
                stdout=log,
                stderr=log,
                stdin=subprocess.PIPE,
                env=_environment(),
                start_new_session=True,
            )
        try:
            _wait(server, folder, port)
            yield f"postgresql://etude@127.0.0.1:{port}/postgres"
        finally:
            assert server.stdin is not None
            server.stdin.close()
            server.wait(30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _binaries() -> Path:
    def release(path: Path) -> float:
        name = path.parent.parent.name
        return float(name) if name.replace(".", "", 1).isdigit() else 0.0

    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=release)
    if found:
        return found[-1].parent
    if (on_path := shutil.which("initdb")) is not None:
        return Path(on_path).resolve().parent
    pytest.fail(MISSING)


def _as_ordinary_user(folder: Path) -> list[str]:
    """PostgreSQL refuses root: what to put before a command so that it runs as somebody else."""
    if os.geteuid() != 0:
        return []
    mapped = ["unshare", "--user", "--map-user=1000", "--map-group=1000", "--"]
    if shutil.which("unshare") and subprocess.run([*mapped, "true"], capture_output=True).returncode == 0:
        return mapped
    if shutil.which("setpriv"):
        os.chown(folder, 65534, 65534)
        return ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]
    pytest.fail("PostgreSQL does not start as root: run the tests as a user, or set ETUDE_TEST_POSTGRES")


def _environment() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def _wait(server: "subprocess.Popen[bytes]", folder: Path, port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and server.poll() is None:
        ready = folder / "data" / "postmaster.pid"
        if ready.exists() and ready.read_text().rstrip().endswith("ready"):
            return
        time.sleep(0.02)
    pytest.fail(f"PostgreSQL did not start on port {port}:\n{(folder / 'log').read_text()}")
