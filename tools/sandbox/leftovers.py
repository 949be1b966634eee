"""Ends what a killed server left of a sandbox that was just starting.

For a moment of its start, bubblewrap's first process inside waits for its parent and is not told of that
parent's death. A server killed in that moment leaves it waiting for ever. So every sandbox carries the
identity of its server in its last argument, and what carries the identity of a server that is gone is
ended: at once by a watcher that outlives the server (this file run as a program, `python -I -S leftovers.py
OWNER`), else by the `sweep` of the next server.
"""

import errno
import os
import re
import signal
import sys
import time

SCRIPT = b"/supervisor.sh"
_NAME = re.compile(rb"\d+-\d+-\d+-[0-9a-f]{8}")
_ROUND_S, _PATIENCE_S = 0.05, 3.0


def owner(pid: int | None = None) -> str | None:
    """Identity of a process (this one): pid namespace, number, start in ticks; None if it is gone."""
    number = os.getpid() if pid is None else pid
    try:
        with open(f"/proc/{number}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return None
    if fields[0] in (b"Z", b"X"):
        return None
    return f"{namespace}-{number}-{fields[19].decode()}"


def sweep(of: str | None = None) -> int:
    """End every process of a sandbox whose server is gone, or that belongs to `of` (the identity of a
    server, or the name of one sandbox's folder); returns how many.

    Only sandboxes of this pid namespace count: elsewhere the numbers mean other processes.
    """
    return sum(_end(int(name), of) for name in os.listdir("/proc") if name.isdigit())


def _end(pid: int, of: str | None) -> bool:
    if not _is_left(pid, of):
        return False
    try:
        held = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not _is_left(pid, of):  # the number may have changed hands before it was held
            return False
        signal.pidfd_send_signal(held, signal.SIGKILL)
    except OSError as error:
        if error.errno not in (errno.ESRCH, errno.EPERM):  # gone, or somebody else's
            raise
        return False
    finally:
        os.close(held)
    return True


def _is_left(pid: int, of: str | None) -> bool:
    name = _sandbox(pid)
    if name is None:
        return False
    if of is not None:
        return name == of or name.startswith(f"{of}-")
    server = name.rpartition("-")[0]
    return owner(int(server.split("-")[1])) != server


def _sandbox(pid: int) -> str | None:
    """The name of the sandbox that this process started or is, where its last argument says so."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(65536).split(b"\0")
    except OSError:
        return None
    if len(words) < 3 or not words[-3].endswith(SCRIPT) or not _NAME.fullmatch(words[-2]):
        return None
    name = words[-2].decode()
    ours = os.stat("/proc/self/ns/pid").st_ino
    return name if int(name.partition("-")[0]) == ours else None


def watch() -> None:
    """Start the watcher of this process; call it once. It waits for our end, then ends what is left."""
    mine = owner()
    if mine is None:
        return
    read, write = os.pipe2(os.O_CLOEXEC)  # `write` closes when this process ends, however it does
    # Not Popen's child: nothing here waits for it, and it is meant to outlive us.
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", __file__, mine],
        {"PATH": "/usr/bin:/bin"},
        file_actions=[
            (os.POSIX_SPAWN_DUP2, read, 0),
            (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    os.close(read)
    _held.append(write)


_held: list[int] = []


def main() -> None:
    """Wait until our standard input ends, then sweep until nothing more turns up."""
    os.chdir("/")
    os.read(0, 1)
    deadline = time.monotonic() + _PATIENCE_S
    quiet = 0
    while time.monotonic() < deadline and quiet < 10:
        quiet = 0 if sweep(sys.argv[1]) else quiet + 1
        time.sleep(_ROUND_S)


if __name__ == "__main__":
    main()
