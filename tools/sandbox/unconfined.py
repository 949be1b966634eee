"""Parent of everything that runs without confinement, so that it still ends with the server.

Run as a program of its own (`python -I -S unconfined.py SERVER_PID PROGRAM ARGUMENTS…`). There is no pid
namespace that the kernel would empty for us: this process adopts whatever its descendants leave behind,
and ends all of it when the server dies, asks for it (SIGTERM), or the program ends.
"""

import ctypes
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_SIGKILL, _SIGPIPE, _SIGTERM, _SIGCHLD, _SIGXFSZ = 9, 13, 15, 17, 25
_BLOCK, _UNBLOCK = 0, 1
_ROUND_S, _PATIENCE_S = 0.001, 10.0

_libc = ctypes.CDLL(None, use_errno=True)


def _below(pid: int) -> list[int]:
    found: list[int] = []
    waiting = [pid]
    while waiting:
        current = waiting.pop()
        try:
            threads = os.listdir(f"/proc/{current}/task")
        except OSError:
            continue
        for thread in threads:
            try:
                with open(f"/proc/{current}/task/{thread}/children") as file:
                    listed = [int(child) for child in file.read().split()]
            except OSError:
                continue
            found += listed
            waiting += listed
    return found


def _end_all() -> None:
    """Kill until nothing is left: what forks meanwhile is adopted by us and found in the next round.

    That we have no child is what says so; the list of those below may miss one that is just changing hands.
    """
    me = os.getpid()
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        for pid in _below(me):
            try:
                os.kill(pid, _SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(_ROUND_S)


def guard(server: int, begin: "Callable[[], None]") -> None:
    """Fork; `begin` replaces the child by a program. Ends when that did, or the server, or when told to
    (SIGTERM), with nothing left of what was started; with the child's code if it ended by itself.
    """
    waited = ctypes.create_string_buffer(128)  # a set of signals
    _libc.sigemptyset(waited)
    for number in (_SIGTERM, _SIGCHLD):
        _libc.sigaddset(waited, number)
    _libc.sigprocmask(_BLOCK, waited, None)
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _libc.prctl(_PR_SET_PDEATHSIG, _SIGTERM, 0, 0, 0)
    if os.getppid() != server:
        return
    child = os.fork()
    if child == 0:
        for number in (_SIGPIPE, _SIGXFSZ):  # Python ignores them, and exec would pass that on
            _libc.signal(number, None)
        _libc.sigprocmask(_UNBLOCK, waited, None)
        begin()
        os._exit(127)
    got = ctypes.c_int()
    while True:
        _libc.sigwait(waited, ctypes.byref(got))
        if got.value == _SIGTERM:
            _end_all()
            os._exit(0)
        while True:  # one signal may stand for several deaths
            ended, status = _reaped()
            if ended == child:
                _end_all()
                sys.exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 1)
            if ended <= 0:
                break


def _reaped() -> tuple[int, int]:
    try:
        return os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return -1, 0


def main() -> None:
    program = sys.argv[2:]
    guard(int(sys.argv[1]), lambda: os.execv(program[0], program))


if __name__ == "__main__":
    main()
