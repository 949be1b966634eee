"""The one way out of a sandbox whose network is a list of hosts: an HTTP and SOCKS5 proxy outside of it.

It speaks CONNECT, plain HTTP with absolute addresses, and SOCKS5 (connect only), all at one port that only
the sandbox can see. Whatever it refuses is answered with the reason and reported with the next result.
"""

import asyncio
import logging
import socket
import struct
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

import h11

from tools.sandbox.network import AllowList
from tools.sandbox.upstream import BUFFER, Refused, Resolve, Resolver, Streams, Unreachable, connect

log = logging.getLogger(__name__)

CONNECTIONS: Final = 128
_HEAD_BYTES: Final = 64 * 1024
_HEAD_S: Final = 60.0
_IDLE_S: Final = 300.0
_REPORTED: Final = 64
_HOP_BY_HOP: Final = frozenset(
    {b"connection", b"proxy-connection", b"keep-alive", b"proxy-authorization", b"te", b"upgrade", b"host"}
)
_ADVICE: Final = (
    "Commands reach only the hosts that the user lists as sandbox.network in their own etude.toml. "
    "If this one is needed, ask the user to add it."
)


class _Failed(Exception):
    """A request that is answered with a status and an explanation, and no connection."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status, self.words = status, words


class Proxy:
    """Serves one sandbox. `refused` counts refused connections, `opened` those that were made."""

    def __init__(self, allowed: AllowList, resolve: Resolve | None = None) -> None:
        self.refused = 0
        self.opened = 0
        self._allowed = allowed
        self._resolve = resolve or Resolver()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._news: dict[str, int] = {}

    async def serve(self, listener: socket.socket) -> None:
        """Accept connections of a listening socket, which is ours from now on."""
        self._server = await asyncio.start_server(self._accept, sock=listener, limit=BUFFER, backlog=128)

    def news(self) -> list[str]:
        """What was refused since the last call, as one notice or none."""
        if not self._news:
            return []
        told = [f"{why} ({count} times)" if count > 1 else why for why, count in self._news.items()]
        self._news.clear()
        return [f"The network refused a connection: {'; '.join(told)}. {_ADVICE}"]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- one connection --------------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._tasks) >= CONNECTIONS:
            writer.transport.abort()
            return
        self._tasks.add(task)
        writer.transport.set_write_buffer_limits(high=BUFFER)
        try:
            async with asyncio.timeout(_HEAD_S):
                first = await reader.read(BUFFER)
            if first.startswith(b"\x05"):
                await self._socks(first, reader, writer)
            elif first:
                await _Http(self, reader, writer).run(first)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, h11.ProtocolError) as error:
            log.debug("a connection of a sandbox ended: %s", error)
        except asyncio.CancelledError:
            if self._server is not None and self._server.is_serving():
                raise
        finally:
            self._tasks.discard(task)
            writer.close()
            with suppress(OSError, TimeoutError):
                await writer.wait_closed()

    async def open(self, host: str, port: int) -> Streams:
        """Raises _Failed: the status and words to answer with."""
        try:
            streams = await connect(self._allowed, host, port, self._resolve)
        except Refused as error:
            self.refused += 1
            why = str(error)
            if why in self._news or len(self._news) < _REPORTED:
                self._news[why] = self._news.get(why, 0) + 1
            log.info("a sandbox was refused %s:%d: %s", host, port, why)
            raise _Failed(403, why) from error
        except Unreachable as error:
            raise _Failed(502, str(error)) from error
        streams[1].transport.set_write_buffer_limits(high=BUFFER)
        self.opened += 1
        return streams

    async def _socks(self, data: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        buffer = bytearray(data)

        async def take(size: int) -> bytes:
            async with asyncio.timeout(_HEAD_S):
                while len(buffer) < size:
                    more = await reader.read(BUFFER)
                    if not more:
                        raise asyncio.IncompleteReadError(bytes(buffer), size)
                    buffer.extend(more)
            taken = bytes(buffer[:size])
            del buffer[:size]
            return taken

        async def answer(code: int) -> None:
            writer.write(bytes((5, code, 0, 1)) + bytes(6))
            await writer.drain()

        methods = await take((await take(2))[1])
        writer.write(b"\x05\x00" if 0 in methods else b"\x05\xff")
        if 0 not in methods:
            return None
        _, command, _, kind = await take(4)
        if kind == 1:
            host = socket.inet_ntop(socket.AF_INET, await take(4))
        elif kind == 4:
            host = socket.inet_ntop(socket.AF_INET6, await take(16))
        elif kind == 3:
            host = (await take((await take(1))[0])).decode("ascii", "replace")
        else:
            return await answer(8)
        (port,) = struct.unpack("!H", await take(2))
        if command != 1:
            return await answer(7)
        try:
            there = await self.open(host, port)
        except _Failed as error:
            return await answer(2 if error.status == 403 else 4)
        await answer(0)
        await relay(bytes(buffer), (reader, writer), there)
        return None


class _Http:
    """The requests of one connection, each to a destination of its own."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy, self._reader, self._writer = proxy, reader, writer
        self._client = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES)

    async def run(self, first: bytes) -> None:
        self._client.receive_data(first)
        while True:
            try:
                event = await _event(self._client, self._reader, _HEAD_S)
            except h11.RemoteProtocolError as error:
                return await self._explain(_Failed(error.error_status_hint, f"not HTTP: {error}"))
            if not isinstance(event, h11.Request):
                return None
            try:
                if event.method == b"CONNECT":
                    return await self._tunnel(event)
                await self._forward(event)
            except _Failed as error:
                return await self._explain(error)
            if self._client.our_state is not h11.DONE or self._client.their_state is not h11.DONE:
                return None
            self._client.start_next_cycle()

    async def _tunnel(self, request: h11.Request) -> None:
        host, port = _authority(request.target.decode("ascii", "replace"), None)
        there = await self._proxy.open(host, port)
        try:
            await _event(self._client, self._reader, _HEAD_S)  # the end of the request
            await self._send(h11.Response(status_code=200, headers=[], reason=b"Connection established"))
        except BaseException:
            there[1].close()
            raise
        await relay(self._client.trailing_data[0], (self._reader, self._writer), there)

    async def _forward(self, request: h11.Request) -> None:
        target = urlsplit(request.target.decode("ascii", "replace"))
        if target.scheme != "http" or not target.netloc:
            raise _Failed(400, "this is a proxy: it takes CONNECT host:port and http:// addresses")
        host, port = _authority(target.netloc.rpartition("@")[2], 80)
        reader, writer = await self._proxy.open(host, port)
        server = h11.Connection(h11.CLIENT)
        path = (target.path or "/") + (f"?{target.query}" if target.query else "")
        named = f"[{host}]" if ":" in host else host
        headers = [
            (name, value) for name, value in request.headers.raw_items() if name.lower() not in _HOP_BY_HOP
        ]
        headers = [(b"Host", f"{named}:{port}" if port != 80 else named), *headers, (b"Connection", b"close")]

        async def up() -> None:
            writer.write(server.send(h11.Request(method=request.method, target=path, headers=headers)) or b"")
            while True:
                event = await _event(self._client, self._reader, _IDLE_S)
                if not isinstance(event, (h11.Data, h11.EndOfMessage)):
                    raise ConnectionResetError("the client left")
                writer.write(server.send(event) or b"")
                await writer.drain()
                if isinstance(event, h11.EndOfMessage):
                    return

        async def down() -> None:
            while True:
                event = await _event(server, reader, _IDLE_S)
                if isinstance(event, (h11.InformationalResponse, h11.Response)):
                    kept = [
                        (name, value)
                        for name, value in event.headers.raw_items()
                        if name.lower() not in _HOP_BY_HOP
                    ]
                    event = type(event)(
                        status_code=event.status_code, headers=kept, reason=event.reason, http_version=b"1.1"
                    )
                elif not isinstance(event, (h11.Data, h11.EndOfMessage)):
                    raise ConnectionResetError("the server left")
                await self._send(event)
                if isinstance(event, h11.EndOfMessage):
                    return

        sending = asyncio.ensure_future(up())
        try:
            await down()
            if self._client.their_state is h11.SEND_BODY:  # answered before it had read everything
                await asyncio.wait((sending,), timeout=1)
        except h11.RemoteProtocolError as error:
            raise _Failed(502, f"{host}:{port} did not answer in HTTP ({error})") from error
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            writer.close()

    async def _explain(self, failed: _Failed) -> None:
        if self._client.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return  # part of an answer is out already: all that is left is to end it
        body = f"{failed.words}.\n{_ADVICE if failed.status == 403 else ''}\n".encode("utf-8", "replace")
        # Many programs show only the reason phrase, so it says it all.
        reason = failed.words.encode("ascii", "replace")[:300].replace(b"\r", b" ").replace(b"\n", b" ")
        headers = [
            ("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body))),
            ("Connection", "close"),
        ]  # fmt: skip
        await self._send(h11.Response(status_code=failed.status, headers=headers, reason=reason))
        await self._send(h11.Data(data=body))
        await self._send(h11.EndOfMessage())

    async def _send(self, event: h11.Event) -> None:
        self._writer.write(self._client.send(event) or b"")
        async with asyncio.timeout(_IDLE_S):
            await self._writer.drain()


async def _event(connection: h11.Connection, reader: asyncio.StreamReader, timeout_s: float) -> object:
    """The next event. A connection that neither begins nor goes on in time raises TimeoutError."""
    async with asyncio.timeout(timeout_s):
        while True:
            event = connection.next_event()
            if event is not h11.NEED_DATA:
                return event
            connection.receive_data(await reader.read(BUFFER))


def _authority(text: str, default: int | None) -> tuple[str, int]:
    """Raises _Failed: it is no `host:port`."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, ""
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    if (not port and default is None) or (port and not (port.isascii() and port.isdigit() and len(port) < 6)):
        raise _Failed(400, f"{text[:100]!r} is not host:port")
    number = int(port) if port else default or 0
    if not host or not 0 < number < 65536:
        raise _Failed(400, f"{text[:100]!r} is not host:port")
    return host, number


async def relay(first: bytes, here: Streams, there: Streams) -> None:
    """Carry bytes both ways until both sides have ended, or nothing moved for a while. Closes `there`."""
    loop = asyncio.get_running_loop()
    try:
        if first:
            there[1].write(first)
        async with asyncio.timeout(_IDLE_S) as idle:

            async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                while data := await reader.read(BUFFER):
                    writer.write(data)
                    await writer.drain()
                    idle.reschedule(loop.time() + _IDLE_S)
                if not writer.is_closing():
                    writer.write_eof()

            async with asyncio.TaskGroup() as both:
                both.create_task(carry(here[0], there[1]))
                both.create_task(carry(there[0], here[1]))
    except* (OSError, TimeoutError) as errors:
        log.debug("a tunnel of a sandbox ended: %s", errors.exceptions[0])
    finally:
        there[1].close()
