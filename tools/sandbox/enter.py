"""Starts a program among the mounts that another process holds: `python -I -S enter.py PID PROGRAM…`.

For an ordinary user's sandbox around a forked workspace: bubblewrap has to see the fork's mount to bind it.
"""

import ctypes
import fcntl
import os
import signal
import sys

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_NS_GET_USERNS = 0xB701

_libc = ctypes.CDLL(None, use_errno=True)


def enter(pid: int) -> None:
    """Join the mounts of a process, and the user namespace that owns them where that is another one."""
    mounts = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    descriptors = [(mounts, _CLONE_NEWNS)]
    if os.getuid() != 0:
        descriptors.insert(0, (fcntl.ioctl(mounts, _NS_GET_USERNS), _CLONE_NEWUSER))
    for descriptor, kind in descriptors:
        if _libc.setns(descriptor, kind) < 0:
            code = ctypes.get_errno()
            raise OSError(code, f"setns: {os.strerror(code)}")
        os.close(descriptor)


def main() -> None:
    try:
        enter(int(sys.argv[1]))
    except OSError as error:
        sys.exit(f"the workspace's mounts cannot be entered: {error}")
    os.chdir("/")
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and exec would pass that on
        signal.signal(number, signal.SIG_DFL)
    os.execv(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
