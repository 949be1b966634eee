"""The terminal's connection: however it ends, whoever reads the inbox is told."""

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from websockets.http11 import Response
from websockets.sync.server import ServerConnection, serve

from server.failure import CommandFailed
from server.terminal.acp_client import AcpClient, Closed
from server.terminal.host import Host


@contextmanager
def serving(handle: Callable[[ServerConnection], None], **options: Any) -> Iterator[AcpClient]:
    """A client of a server that does just this."""
    with serve(handle, "127.0.0.1", 0, **options) as server:
        running = threading.Thread(target=server.serve_forever)
        running.start()
        try:
            yield AcpClient(Host(f"http://127.0.0.1:{server.socket.getsockname()[1]}", "token"))
        finally:
            server.shutdown()
            running.join()


def test_an_end_while_heartbeats_are_answered_is_told() -> None:
    def handle(socket: ServerConnection) -> None:
        hello = json.loads(socket.recv())
        socket.send(json.dumps({"jsonrpc": "2.0", "id": hello["id"], "result": {}}))
        for _ in range(12):
            socket.send(json.dumps({"jsonrpc": "2.0", "method": "_etude/heartbeat", "params": {}}))
        socket.close(1001)

    with serving(handle) as client:
        client.connect()
        assert isinstance(client.receive(10), Closed)
        client.close()


def test_a_refusal_is_given_in_the_servers_words() -> None:
    def refuse(socket: ServerConnection, request: object) -> Response:
        return socket.respond(403, json.dumps({"detail": "unknown host: add it to server.allowed_hosts"}))

    refused = pytest.raises(CommandFailed, match=r"\(403\): unknown host: add it")
    with serving(lambda socket: None, process_request=refuse) as client, refused:
        client.connect()


@pytest.mark.parametrize("read_first", [0, 1, 4096])
def test_a_server_that_is_only_just_coming_up_is_no_defect(read_first: int) -> None:
    """It accepts, and is gone before or amid the handshake: that is a failure to try again after."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            for _ in range(20):
                connection, _ = listener.accept()
                if read_first:
                    connection.recv(read_first)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.close()

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        client = AcpClient(Host(f"http://127.0.0.1:{listener.getsockname()[1]}", "token"))
        for _ in range(20):
            with pytest.raises(CommandFailed, match="no connection to the server"):
                client.connect()
        accepting.join(10)
