"""What is left of a sandbox whose server was killed while it started is ended."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tools.sandbox import bubblewrap, leftovers

ROOT = Path(__file__).parents[3]
STARTER = """
import asyncio, sys
from pathlib import Path
from tools.sandbox.policy import SandboxPolicy
from tools.sandbox.sandbox import Sandbox

async def main():
    print("ready", flush=True)
    for _ in range(100):
        sandbox = await Sandbox.open(SandboxPolicy(), "bubblewrap", Path(sys.argv[1]))
        await sandbox.close()

asyncio.run(main())
"""


def of(server: str) -> list[int]:
    """Living processes of a server's sandboxes."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        if words and words[-1].startswith(f"{server}-") and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return found


def none_within(server: str, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while of(server):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture
def blocked() -> Iterator[list[int]]:
    """Pipes whose end would let a waiting bubblewrap go on."""
    pipes: list[int] = []
    yield pipes
    for pipe in pipes:
        os.close(pipe)


def waiting_inner(server: str, blocked: list[int]) -> subprocess.Popen[bytes]:
    """A bubblewrap that stays in the moment before its inner process runs, as a killed server leaves it."""
    read, write = os.pipe()
    command = [str(bubblewrap.find().path), "--unshare-all", "--unshare-user", "--die-with-parent"]
    nothing = os.open("/dev/null", os.O_WRONLY)
    command += ["--userns-block-fd", str(read), "--info-fd", str(nothing), "--ro-bind", "/", "/"]
    command += ["--", "/usr/bin/env", "bash", f"{bubblewrap.INSIDE}/supervisor.sh", f"{server}-0123abcd"]
    process = subprocess.Popen(command, pass_fds=[read, nothing], start_new_session=True)
    os.close(read)
    os.close(nothing)
    blocked.append(write)
    deadline = time.monotonic() + 10
    while len(of(server)) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    return process


def ended_server() -> str:
    process = subprocess.Popen(["sleep", "60"])
    identity = leftovers.owner(process.pid)
    process.kill()
    process.wait()
    assert identity is not None and leftovers.owner(process.pid) is None
    return identity


@pytest.mark.case("agent-29")
def test_the_next_server_ends_what_waits_for_a_dead_parent(blocked: list[int]) -> None:
    server = ended_server()
    outer = waiting_inner(server, blocked)
    assert len(of(server)) == 2
    outer.kill()
    outer.wait()
    left = of(server)
    assert len(left) == 1, "the inner process waits for ever"
    assert leftovers.sweep() >= 1
    assert none_within(server, 5)


def test_sandboxes_of_living_servers_are_left_alone(blocked: list[int]) -> None:
    server = leftovers.owner()
    assert server is not None
    outer = waiting_inner(server, blocked)
    try:
        leftovers.sweep()
        assert len(of(server)) >= 2 and outer.poll() is None
        assert leftovers.sweep(f"{server}-0123abcd") == 2
        assert none_within(server, 5)
    finally:
        outer.kill()
        outer.wait()


@pytest.mark.case("agent-29")
async def test_nothing_is_left_by_a_server_killed_while_sandboxes_start(tmp_path: Path) -> None:
    source = random.Random(29)
    for _ in range(8):
        server = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", STARTER, str(tmp_path.resolve())),
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
        )
        assert server.stdout is not None
        assert await asyncio.wait_for(server.stdout.readline(), 30) == b"ready\n"
        identity = leftovers.owner(server.pid)
        assert identity is not None
        await asyncio.sleep(source.uniform(0.005, 0.15))
        server.send_signal(signal.SIGKILL)
        await server.wait()
        assert await asyncio.to_thread(none_within, identity, 5), "a process outlived its server"
