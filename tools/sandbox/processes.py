"""The processes of a sandbox, seen and ended from outside."""

import os
import signal
from collections.abc import Iterable
from typing import NamedTuple

import psutil


class Process(NamedTuple):
    """A process that cannot be mistaken for a later one with the same number."""

    pid: int
    started: int
    """Clock ticks since boot."""


def children(pid: int) -> list[int]:
    """Direct children of a single-threaded process, in order of creation; [] if it is gone."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return [int(child) for child in file.read().split()]
    except FileNotFoundError:
        return [] if not os.path.exists(f"/proc/{pid}") else _children_slowly(pid)
    except (ProcessLookupError, PermissionError):
        return []


def _children_slowly(pid: int) -> list[int]:
    """For kernels that do not list children."""
    try:
        return [child.pid for child in psutil.Process(pid).children()]
    except psutil.NoSuchProcess:
        return []


def descendants(pid: int, without: Iterable[int] = ()) -> list[int]:
    """Everything below `pid`, parents first, leaving out the processes `without` and all below them."""
    left_out = set(without)
    found: list[int] = []
    waiting = [pid]
    while waiting:
        for child in _all_children(waiting.pop()):
            if child not in left_out:
                left_out.add(child)
                found.append(child)
                waiting.append(child)
    return found


def _all_children(pid: int) -> list[int]:
    """Children of every thread of a process."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    if len(threads) == 1:
        return children(pid)
    found: list[int] = []
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += [int(child) for child in file.read().split()]
        except OSError:
            continue
    return found


def identify(pid: int) -> Process | None:
    """The process with this number now; None if it is gone or a zombie."""
    fields = _stat(pid)
    if fields is None or fields[0] in (b"Z", b"X"):
        return None
    return Process(pid, int(fields[19]))


def _stat(pid: int) -> list[bytes] | None:
    """Fields of /proc/PID/stat from the state on (the third): the name before may hold anything."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


def alive(process: Process) -> bool:
    return identify(process.pid) == process


def inner_pid(pid: int) -> int:
    """The number a process has inside its own pid namespace: what a command there would `kill`."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith(b"NSpid:"):
                    return int(line.split()[-1])
    except (FileNotFoundError, ProcessLookupError):
        return pid
    return pid


def command_line(pid: int, limit: int = 120) -> str:
    """How the process was started, on one line."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(4096).replace(b"\0", b" ").decode("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    text = "".join(character if character.isprintable() else " " for character in words).strip()
    return text if len(text) <= limit else text[: limit - 1] + "…"


def environment_has(pid: int, assignment: bytes) -> bool:
    """Whether the process was started with this `NAME=value` in its environment."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return assignment in file.read(256 * 1024).split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False


def resident_bytes(pid: int) -> int:
    """Memory of its own and shared memory it maps, in bytes; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (FileNotFoundError, ProcessLookupError):
        return 0


def send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):  # gone, or its number was taken by a stranger
            continue
