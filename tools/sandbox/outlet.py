"""Gives a running sandbox its way out: a port inside, served by a proxy in this process."""

import array
import asyncio
import socket
import subprocess
import sys
from typing import Final

from tools.errors import EnvironmentFault
from tools.sandbox import doorway
from tools.sandbox.bubblewrap import PROXY_PORT
from tools.sandbox.network import AllowList
from tools.sandbox.proxy import Proxy
from tools.sandbox.upstream import Resolve

_OPEN_S: Final = 20.0


async def outlet(init: int, hosts: tuple[str, ...], resolve: Resolve | None = None) -> Proxy:
    """A proxy that the sandbox whose first process is `init` finds at 127.0.0.1:`PROXY_PORT`.

    Raises:
        EnvironmentFault: a host in the list is none, or the sandbox's network could not be entered.
    """
    try:
        allowed = AllowList.parse(hosts)
    except ValueError as error:
        raise EnvironmentFault(f"sandbox.network: {error}.") from error
    listener = await _listener(init)
    proxy = Proxy(allowed, resolve)
    try:
        await proxy.serve(listener)
    except BaseException:
        listener.close()
        raise
    return proxy


async def _listener(init: int) -> socket.socket:
    """A socket that listens inside."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            arguments = [str(init), str(PROXY_PORT), str(theirs.fileno())]
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", doorway.__file__, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(theirs.fileno(),),
                env={},
                cwd="/",
            )
        try:
            async with asyncio.timeout(_OPEN_S):
                _, errors = await process.communicate()
        except BaseException:
            if process.returncode is None:
                process.kill()
            await process.wait()
            raise
        if process.returncode != 0:
            words = errors.decode("utf-8", "replace").strip()
            raise EnvironmentFault(f"The sandbox's network could not be entered: {words}.")
        _, sent, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(array.array("i").itemsize))
    descriptors = array.array("i")
    descriptors.frombytes(sent[0][2])
    listener = socket.socket(fileno=descriptors[0])
    listener.setblocking(False)
    return listener
