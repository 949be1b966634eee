"""Running the application: the socket, uvicorn, `server.json`, a stop that tells everyone why."""

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn
from fastapi import FastAPI

from server.discovery import ServerInfo, announce, withdraw
from server.hub import Hub
from server.version import VERSION

HARD_LIMIT = 64 << 20
"""Bytes of one incoming frame; beyond, the connection is closed with 1009."""
STOP_S = 10
SWITCH_S = 0.0005
"""How long a worker thread may keep the interpreter while the event loop waits for it."""

log = logging.getLogger(__name__)


class CannotListen(Exception):
    """The address cannot be listened on. The message says why and what to do."""


def run(main: Coroutine[Any, Any, int]) -> int:
    """Run a coroutine on the fastest event loop there is here."""
    sys.setswitchinterval(SWITCH_S)
    if sys.platform == "win32":
        return asyncio.run(main)
    import uvloop

    return uvloop.run(main)


def listen(host: str, port: int) -> socket.socket:
    """A bound socket; port 0 takes any free one.

    Raises:
        CannotListen: the port is taken, not allowed, or the address is not ours.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        why = error.strerror or str(error)
        raise CannotListen(
            f"cannot listen on {host} port {port} ({why}); choose another with --port, or 0 for any free one"
        ) from error
    bound.set_inheritable(False)
    return bound


def start(
    app: FastAPI,
    bound: socket.socket,
    token: str,
    ready: Callable[[ServerInfo], None],
    *,
    public: bool = True,
) -> "tuple[uvicorn.Server, asyncio.Task[None]]":
    """Begin to serve. Setting `should_exit` of the server, or a signal, stops it gracefully.

    `ready` is called once requests are answered. `public` writes `server.json` for other programs of
    this user to find; a private server is known to its parent alone.
    """
    _quiet_logs()
    config = uvicorn.Config(
        app,
        ws="websockets-sansio",
        ws_max_size=HARD_LIMIT,
        ws_per_message_deflate=False,
        ws_ping_interval=20,
        ws_ping_timeout=20,
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=STOP_S,
        lifespan="on",
    )
    info = ServerInfo(_url(bound), token, os.getpid(), time.time(), VERSION)

    before: ServerInfo | None = None

    def started() -> None:
        nonlocal before
        if public:
            before = announce(info)
        ready(info)

    server = _Server(config, app.state.hub, started)

    async def work() -> None:
        try:
            await server.serve(sockets=[bound])
        finally:
            if public:
                withdraw(info, before=before)

    return server, asyncio.get_running_loop().create_task(work())


class _Server(uvicorn.Server):
    """Says when it has started, and tells every client that it stops before their connections are cut."""

    def __init__(self, config: uvicorn.Config, hub: Hub, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self.hub, self.ready = hub, ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGINT and SIGTERM. Unlike uvicorn's own, it does not raise them again afterwards."""
        loop, signals = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM)
        handled: list[signal.Signals] = []
        for number in signals:
            with suppress(NotImplementedError, ValueError, RuntimeError):  # Windows; not the main thread
                loop.add_signal_handler(number, self.handle_exit, number, None)
                handled.append(number)
        try:
            yield
        finally:
            for number in handled:
                loop.remove_signal_handler(number)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            self.ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self.hub.stop()
        await super().shutdown(sockets)


def _url(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # everywhere: on this machine, loopback is the way
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Noise(logging.Filter):
    """Drops what uvicorn logs as an error each time a connection is refused before it is accepted."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "without completing handshake" not in record.getMessage()


def _quiet_logs() -> None:
    error = logging.getLogger("uvicorn.error")
    if not any(isinstance(known, _Noise) for known in error.filters):
        error.addFilter(_Noise())
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
