"""Parent of everything that runs without confinement, so that it still ends with the server.

Run as a program of its own (`python -I -S unconfined.py SERVER_PID PROGRAM ARGUMENTS…`). There is no pid
namespace that the kernel would empty for us: this process adopts whatever its descendants leave behind,
and ends all of it when the server dies, asks for it (SIGTERM), or the program ends.
"""

import ctypes
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


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
    """Kill until nothing is left: what forks meanwhile is adopted by us and found in the next round."""
    me = os.getpid()
    for _ in range(1000):
        left = _below(me)
        if not left:
            return
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return


def guard(server: int, begin: "Callable[[], None]") -> None:
    """Fork; `begin` replaces the child by a program. Returns when that ended and nothing is left of it.

    Exits with the child's code if that did not come up.
    """

    def stop(*_: object) -> None:
        _end_all()
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != server:
        return
    child = os.fork()
    if child == 0:
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        begin()
        os._exit(127)
    status = 0
    ended = 0
    while ended != child:
        ended, status = os.waitpid(-1, 0)
    _end_all()
    sys.exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 1)


def main() -> None:
    program = sys.argv[2:]
    guard(int(sys.argv[1]), lambda: os.execv(program[0], program))


if __name__ == "__main__":
    main()
