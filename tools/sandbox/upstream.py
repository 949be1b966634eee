"""Connections out of a sandbox: a name is resolved here, and what is connected to is the address that was
checked, so that a name server cannot give one answer to the check and another to the connection."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from typing import Final

from tools.sandbox.network import Address, AllowList, address, ascii_name

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Resolve = Callable[[str, int], Awaitable[list[str]]]

BUFFER: Final = 32 * 1024
_RESOLVE_S: Final = 15.0
_CONNECT_S: Final = 10.0
_LOOKUPS: Final = 8
_ADDRESSES: Final = 4


class Refused(Exception):
    """The list does not allow the destination; the text says which one and why."""


class Unreachable(Exception):
    """It is allowed, but nothing answers there; the text says what failed."""


async def connect(allowed: AllowList, host: str, port: int, resolve: Resolve) -> Streams:
    """Streams to an allowed destination.

    Raises:
        Refused: the list does not allow it, or its name leads to an address that is not public.
        Unreachable: the name is unknown, or nobody listens.
    """
    refusal = allowed.refusal(host, port)
    if refusal is not None:
        raise Refused(refusal)
    literal = address(host)
    found = [literal] if literal is not None else await _addresses(host, port, resolve)
    good = [one for one in found if allowed.reachable(one, port)]
    if not good:
        raise Refused(
            f"{host} leads to {', '.join(map(str, found[:_ADDRESSES]))}, which is not a public address; "
            "if it is yours, list the address in sandbox.network too"
        )
    problem = ""
    for one in good[:_ADDRESSES]:
        try:
            async with asyncio.timeout(_CONNECT_S):
                return await asyncio.open_connection(str(one), port, limit=BUFFER)
        except TimeoutError:
            problem = f"{host}:{port} ({one}) did not answer within {_CONNECT_S:g} s"
        except OSError as error:
            problem = f"{host}:{port} ({one}): {error.strerror or error}"
    raise Unreachable(problem)


async def _addresses(host: str, port: int, resolve: Resolve) -> list[Address]:
    name = ascii_name(host) or host
    try:
        async with asyncio.timeout(_RESOLVE_S):
            texts = await resolve(name, port)
    except TimeoutError:
        raise Unreachable(f"the name {name} could not be resolved within {_RESOLVE_S:g} s") from None
    except OSError as error:
        raise Unreachable(f"the name {name} does not resolve ({error.strerror or error})") from error
    found = [one for one in map(address, texts) if one is not None]
    if not found:
        raise Unreachable(f"the name {name} has no address")
    return found


class Resolver:
    """Addresses of names as the machine's own resolver gives them.

    A lookup cannot be interrupted, so it has a thread of its own that nobody waits for at the end; the
    threads everything else shares would be used up by a name server that does not answer.
    """

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(_LOOKUPS)

    async def __call__(self, name: str, port: int) -> list[str]:
        """Raises OSError: there is no such name."""
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[str]] = loop.create_future()

        def tell(found: list[str], problem: OSError | None) -> None:
            self._free.release()
            if answer.done():
                return
            if problem is None:
                answer.set_result(found)
            else:
                answer.set_exception(problem)

        def look_up() -> None:
            found: list[str] = []
            problem: OSError | None = None
            try:
                entries = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
                found = list(dict.fromkeys(str(entry[4][0]) for entry in entries))
            except OSError as error:
                problem = error
            except UnicodeError as error:
                problem = OSError(str(error))
            try:
                loop.call_soon_threadsafe(tell, found, problem)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return

        threading.Thread(target=look_up, name="etude-resolve", daemon=True).start()
        return await answer
