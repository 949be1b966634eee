"""Makes paths read-only again in a running sandbox, after a rename on the host removed their mounts.

Run as a program of its own (`python -I -S remount.py INIT PATH…`), since it enters the namespaces of the
sandbox whose first process is INIT: the user namespace that owns its mounts, then the mounts. Each path is
reached without following a link, so what lies inside cannot lead it elsewhere.
"""

import ctypes
import fcntl
import os
import struct
import sys

_SYS_OPEN_TREE, _SYS_MOVE_MOUNT, _SYS_OPENAT2, _SYS_MOUNT_SETATTR = 428, 429, 437, 442
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_NS_GET_USERNS = 0xB701
_AT_FDCWD, _AT_EMPTY_PATH = -100, 0x1000
_OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC = 0x1, 0o2000000
_MOVE_FROM_EMPTY, _MOVE_TO_EMPTY = 0x4, 0x40
_READ_ONLY, _NO_SUID, _NO_DEVICES = 0x1, 0x2, 0x4
_RESOLVE_NO_SYMLINKS = 0x04
_O_PATH = 0o10000000

_libc = ctypes.CDLL(None, use_errno=True)


def _syscall(what: str, number: int, *arguments: object) -> int:
    result = _libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return int(result)


def _enter(init: int) -> None:
    mounts = os.open(f"/proc/{init}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    owner = fcntl.ioctl(mounts, _NS_GET_USERNS)
    for descriptor, kind in ((owner, _CLONE_NEWUSER), (mounts, _CLONE_NEWNS)):
        if _libc.setns(descriptor, kind) < 0:
            code = ctypes.get_errno()
            raise OSError(code, f"setns: {os.strerror(code)}")


def _bind_read_only(path: str) -> None:
    how = struct.pack("QQQ", _O_PATH | os.O_CLOEXEC, 0, _RESOLVE_NO_SYMLINKS)
    size = ctypes.c_size_t(len(how))
    place = _syscall("openat2", _SYS_OPENAT2, _AT_FDCWD, os.fsencode(path), how, size)
    flags = ctypes.c_uint(_OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | _AT_EMPTY_PATH)
    tree = _syscall("open_tree", _SYS_OPEN_TREE, place, b"", flags)
    attributes = struct.pack("QQQQ", _READ_ONLY | _NO_SUID | _NO_DEVICES, 0, 0, 0)
    size = ctypes.c_size_t(len(attributes))
    _syscall("mount_setattr", _SYS_MOUNT_SETATTR, tree, b"", ctypes.c_uint(_AT_EMPTY_PATH), attributes, size)
    both = ctypes.c_uint(_MOVE_FROM_EMPTY | _MOVE_TO_EMPTY)
    _syscall("move_mount", _SYS_MOVE_MOUNT, tree, b"", place, b"", both)


def main() -> None:
    _enter(int(sys.argv[1]))
    for path in sys.argv[2:]:
        _bind_read_only(path)


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(str(error))
