"""What guards put into repositories goes with the server that put it there, even if it was killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tools.sandbox import runtime
from tools.sandbox.git_guard import guard

ROOT = Path(__file__).parents[3]
GUARDING = """
import sys, time
from pathlib import Path
from tools.sandbox.git_guard import guard

kept = guard(Path(sys.argv[1]))
print("guarded", flush=True)
time.sleep(60)
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(tmp_path / "work")], check=True)
    return tmp_path / "work"


def killed_guard(repository: Path) -> Path:
    """The guard file of a server that was killed."""
    server = subprocess.Popen(
        [sys.executable, "-c", GUARDING, str(repository)], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert server.stdout is not None
    with server.stdout:
        assert server.stdout.readline() == b"guarded\n"
        server.send_signal(signal.SIGKILL)
        server.wait()
    common = repository / ".git" / "commondir"
    assert common.read_bytes() == b".\n"
    return common


def test_the_next_start_removes_what_a_killed_server_left(repository: Path) -> None:
    common = killed_guard(repository)
    runtime.sweep()
    assert not common.exists()


def test_a_file_that_was_put_in_its_place_stays(repository: Path) -> None:
    common = killed_guard(repository)
    mine = common.with_name("mine")
    mine.write_bytes(b".\n")
    os.replace(mine, common)
    runtime.sweep()
    assert common.read_bytes() == b".\n"


def test_it_stays_while_another_session_relies_on_it(repository: Path) -> None:
    common = killed_guard(repository)
    other = guard(repository)
    runtime.sweep()
    assert common.exists()
    other.release()
    assert not common.exists()
    runtime.sweep()
