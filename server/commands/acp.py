"""`etude acp`: the one server on standard input and output, for editors that start their agent themselves.

A bridge, line ↔ frame. At the end of input it waits for the answers to what was asked, then leaves.
"""

import argparse
import json
import sys
import threading
import time

from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.sync.client import ClientConnection, connect

from server import places
from server.commands import session_options
from server.failure import CommandFailed
from server.terminal.host import Host, a_server

LINE_BYTES = 64 << 20
SILENCE_S = 60.0
"""After the end of input: how long the server may be silent with a question open before the bridge leaves."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", help="model of a private server")
    parser.add_argument("--mode", choices=session_options.MODES, help="mode of a private server")
    parser.add_argument("--db", metavar="URL", help="database of a private server")
    parser.epilog = "Uses the running server (`etude serve`), or a private one that ends with the editor."
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    flags = session_options.server_flags(arguments)
    with a_server(places.caller(), flags) as host, _connect(host) as socket:
        return _Bridge(socket).run()


def _connect(host: Host) -> ClientConnection:
    try:
        return connect(
            host.socket,
            additional_headers={"Authorization": f"Bearer {host.token}"},
            max_size=LINE_BYTES,
            compression=None,
            proxy=None,
        )
    except (OSError, InvalidHandshake) as error:
        raise CommandFailed(f"no connection to the server at {host.url} ({error})") from error


class _Bridge:
    """Two threads, one for each direction. Only ids are looked at: which questions are still open."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.open: set[str] = set()
        self.heard = time.monotonic()
        self.input_ended = False
        self.ended = threading.Event()
        self._writing = threading.Lock()

    def run(self) -> int:
        for name, work in (("to-editor", self._to_editor), ("from-editor", self._from_editor)):
            threading.Thread(target=work, name=f"acp-{name}", daemon=True).start()
        self.ended.wait()
        if self.input_ended:
            return 0
        sys.stderr.write("etude: the connection to the server ended; start again and load the session\n")
        return 1

    def _from_editor(self) -> None:
        """Lines until the end of input; then wait for the answers to what was asked."""
        source = sys.stdin.buffer
        try:
            while line := source.readline(LINE_BYTES):
                if len(line) == LINE_BYTES and not line.endswith(b"\n"):
                    while not line.endswith(b"\n") and (line := source.readline(LINE_BYTES)):
                        pass
                    self._refuse_line()
                elif text := line.strip():
                    self._note(text, asked=True)
                    self.socket.send(text.decode("utf-8", "replace"))
            self.input_ended, self.heard = True, time.monotonic()
            while self.open and time.monotonic() - self.heard < SILENCE_S and not self.ended.is_set():
                self.ended.wait(0.05)
        except ConnectionClosed:
            pass  # `_to_editor` sees it too, and `run` says so
        finally:
            self.ended.set()

    def _to_editor(self) -> None:
        try:
            for data in self.socket:
                frame = data.encode() if isinstance(data, str) else data
                self.heard = time.monotonic()
                self._write(frame)
                self._note(frame, asked=False)
        except (ConnectionClosed, BrokenPipeError):
            pass  # the server or the editor is gone: either way the bridge ends
        finally:
            self.ended.set()

    def _note(self, frame: bytes, *, asked: bool) -> None:
        if not asked and b'"id"' not in frame[:64]:
            return  # a notification: most frames are
        try:
            message = json.loads(frame)
            id, method = message.get("id"), message.get("method")
        except (ValueError, AttributeError):
            return  # the server answers it with an error that has no id
        if id is not None and asked and method is not None:
            self.open.add(str(id))
        elif id is not None and not asked and method is None:
            self.open.discard(str(id))

    def _refuse_line(self) -> None:
        error = {"code": -32600, "message": "Line too large", "data": {"limit": LINE_BYTES}}
        self._write(json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode())

    def _write(self, frame: bytes) -> None:
        with self._writing:
            sys.stdout.buffer.write(frame + b"\n")
            sys.stdout.buffer.flush()
