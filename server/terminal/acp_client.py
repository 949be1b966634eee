"""A JSON-RPC peer over a WebSocket: one reader thread, every frame in order in one inbox.

The thread keeps the connection alive while the user types; the main thread draws. `inbox` takes
frames until `BOUND` wait there; then reading pauses, and the server may close the connection, which
is resumed by `seq`.
"""

import itertools
import json
import queue
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.sync.client import ClientConnection, connect

from server.failure import CommandFailed, Usage
from server.terminal.host import Host, detail_of
from server.wire import to_json

BOUND = 8192
MESSAGE_LIMIT = 16 << 20
"""Characters of one message to the server."""
FRAME_BYTES = 64 << 20
NAME = "etude terminal"
INVALID_PARAMS = -32602
"""JSON-RPC's own code."""
ASKS = ("session/request_permission", "elicitation/create")
"""What the server may ask of its client."""


class RpcFailed(CommandFailed):
    """The server answered a request with an error. Wrong parameters are a mistake of whoever asked."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = Usage.code if code == INVALID_PARAMS else CommandFailed.code


@dataclass(frozen=True, slots=True)
class Frame:
    """What the peer sent: a notification (`id` None), a request, or an answer (`method` None)."""

    method: str | None
    id: int | str | None
    body: Mapping[str, Any]
    """Parameters of a notification or request; `{result}` or `{error}` of an answer."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection ended, and not by us."""

    reason: str


@dataclass(frozen=True, slots=True)
class Interrupt:
    """The user pressed Ctrl-C."""


class AcpClient:
    """One connection. `call` waits for its answer; the answer to `send` comes through `inbox`."""

    def __init__(self, host: Host, *, forms: bool = False) -> None:
        """`forms`: whether a person can be asked to type an answer."""
        self.host = host
        self.capabilities: dict[str, Any] = {
            "session": {"compaction": {}},
            "_meta": {"etude": {"attach": True}},
        }
        if forms:
            self.capabilities["elicitation"] = {"form": {}}
        self.inbox: queue.SimpleQueue[Frame | Closed | Interrupt] = queue.SimpleQueue()
        self._room = threading.BoundedSemaphore(BOUND)
        self._ids = itertools.count(1)
        self._waiting: dict[int, queue.SimpleQueue[Mapping[str, Any]]] = {}
        self._socket: ClientConnection | None = None
        self._closing = False

    def connect(self) -> None:
        """Open the connection and say hello. Raises `CommandFailed` when the server will not have us."""
        try:
            opening = connect(
                self.host.socket,
                additional_headers={"Authorization": f"Bearer {self.host.token}"},
                max_size=FRAME_BYTES,
                compression=None,
                proxy=None,
                open_timeout=20,
                close_timeout=2,
            )
            # Entered here and left in `close`: it outlives this call.
            self._socket = ExitStack().enter_context(opening)
        except InvalidStatus as refusal:
            status = refusal.response.status_code
            if status == 401:
                raise Usage(
                    f"the server at {self.host.url} does not accept the token; check ETUDE_TOKEN"
                ) from refusal
            why = detail_of(refusal.response.body) or "it gave no reason"
            raise CommandFailed(
                f"the server at {self.host.url} refused the connection ({status}): {why}"
            ) from refusal
        except (OSError, WebSocketException) as error:  # a server that is only just coming up closes, too
            raise CommandFailed(
                f"no connection to the server at {self.host.url} ({error}); does it run?"
            ) from error
        self._closing = False
        threading.Thread(target=self._read, args=(self._socket,), name="acp-reader", daemon=True).start()
        self.call(
            "initialize",
            {
                "protocolVersion": 1,
                "clientCapabilities": self.capabilities,
                "clientInfo": {"name": NAME, "title": "Etude in a terminal", "version": version("etude")},
            },
        )

    def close(self) -> None:
        self._closing = True
        if self._socket is not None:
            self._socket.close()

    def call(self, method: str, params: Mapping[str, Any], *, timeout_s: float = 60) -> Mapping[str, Any]:
        """Send a request and wait. Raises `RpcFailed` on an error, `CommandFailed` on silence."""
        id = next(self._ids)
        answer: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
        self._waiting[id] = answer
        try:
            self._write({"id": id, "method": method, "params": params})
            body = answer.get(timeout=timeout_s)
        except queue.Empty:
            raise CommandFailed(f"the server did not answer {method} within {timeout_s:.0f} s") from None
        finally:
            self._waiting.pop(id, None)
        return result(body, method)

    def send(self, method: str, params: Mapping[str, Any]) -> int:
        """Send a request whose answer will be a frame with this id."""
        id = next(self._ids)
        self._write({"id": id, "method": method, "params": params})
        return id

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        self._write({"method": method, "params": params})

    def answer(self, id: int | str, result: Mapping[str, Any]) -> None:
        self._write({"id": id, "result": result})

    def receive(self, timeout_s: float | None) -> Frame | Closed | Interrupt | None:
        """The next thing that happened; None when nothing did in time."""
        try:
            item = self.inbox.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(item, Frame):
            self._room.release()
        return item

    def interrupt(self) -> None:
        """Safe in a signal handler."""
        self.inbox.put(Interrupt())

    def _write(self, message: Mapping[str, Any]) -> None:
        if self._socket is None:
            raise CommandFailed("not connected")
        text = to_json({"jsonrpc": "2.0", **message}).decode()
        if len(text) > MESSAGE_LIMIT:
            # The server would refuse it without being able to say which request that was.
            raise CommandFailed(
                f"the message has {len(text)} characters, more than the {MESSAGE_LIMIT} that a server takes: "
                "put it in a file of the workspace and name the file"
            )
        try:
            self._socket.send(text)
        except ConnectionClosed as error:
            raise CommandFailed(f"the connection to {self.host.url} is closed ({error})") from error

    def _read(self, socket: ClientConnection) -> None:
        try:
            for data in socket:
                self._take(json.loads(data))
            reason = "the server closed the connection"
        except (ConnectionClosed, CommandFailed) as error:  # while reading, or while answering a heartbeat
            reason = str(error)
        except ValueError as error:
            reason = f"the server sent something that is not JSON ({error})"
        for answer in list(self._waiting.values()):
            answer.put({"error": {"message": reason}})
        if not self._closing:
            self.inbox.put(Closed(reason))

    def _take(self, message: Mapping[str, Any]) -> None:
        method, id = message.get("method"), message.get("id")
        if method is None and isinstance(id, int) and (answer := self._waiting.get(id)):
            answer.put(message)
        elif method == "_etude/heartbeat":
            self.notify("_etude/heartbeat", {})
        elif method is not None and id is not None and method not in ASKS:
            self._write({"id": id, "error": {"code": -32601, "message": f"this client has no {method}"}})
        else:
            self._room.acquire()
            self.inbox.put(Frame(method, id, message if method is None else message.get("params") or {}))


def result(body: Mapping[str, Any], method: str) -> Mapping[str, Any]:
    """The result of an answer. Raises `RpcFailed` if it is an error."""
    error = body.get("error")
    if error is not None:
        said = error.get("message")
        message = str(said) if said else f"the server refused {method} and did not say why"
        raise RpcFailed(message.removeprefix("Invalid params: "), error.get("code"))
    found = body.get("result")
    return found if isinstance(found, dict) else {}
