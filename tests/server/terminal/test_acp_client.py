"""The terminal's connection: however it ends, whoever reads the inbox is told."""

import json
import threading

from websockets.sync.server import ServerConnection, serve

from server.terminal.acp_client import AcpClient, Closed
from server.terminal.host import Host


def test_an_end_while_heartbeats_are_answered_is_told() -> None:
    def handle(socket: ServerConnection) -> None:
        hello = json.loads(socket.recv())
        socket.send(json.dumps({"jsonrpc": "2.0", "id": hello["id"], "result": {}}))
        for _ in range(12):
            socket.send(json.dumps({"jsonrpc": "2.0", "method": "_etude/heartbeat", "params": {}}))
        socket.close(1001)

    with serve(handle, "127.0.0.1", 0) as server:
        running = threading.Thread(target=server.serve_forever)
        running.start()
        try:
            client = AcpClient(Host(f"http://127.0.0.1:{server.socket.getsockname()[1]}", "token"))
            client.connect()
            assert isinstance(client.receive(10), Closed)
            client.close()
        finally:
            server.shutdown()
            running.join()
