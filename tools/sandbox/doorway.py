"""Opens a port in the network of a running sandbox and hands it out to the server.

Run as a program of its own (`python -I -S doorway.py INIT PORT SOCKET`), since it enters the namespaces of
the sandbox whose first process is INIT. A socket stays in the network it was made in: what the server
accepts from it comes from inside, and inside there is no process that a command could end or imitate.
The listening socket is sent over the inherited unix socket with the descriptor SOCKET.
"""

import array
import ctypes
import fcntl
import os
import socket
import sys

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_NS_GET_USERNS = 0xB701
_BACKLOG = 128

_libc = ctypes.CDLL(None, use_errno=True)


def _enter(init: int) -> None:
    network = os.open(f"/proc/{init}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    owner = fcntl.ioctl(network, _NS_GET_USERNS)
    for descriptor, kind in ((owner, _CLONE_NEWUSER), (network, _CLONE_NEWNET)):
        if _libc.setns(descriptor, kind) < 0:
            code = ctypes.get_errno()
            raise OSError(code, f"setns: {os.strerror(code)}")


def main() -> None:
    init, port, channel = map(int, sys.argv[1:4])
    _enter(init)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(_BACKLOG)
    with socket.socket(fileno=channel) as out:
        descriptors = array.array("i", [listener.fileno()])
        out.sendmsg([b"1"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(str(error))
