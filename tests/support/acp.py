"""A bare ACP client over a WebSocket: it sees exactly what is on the wire, and answers permissions."""

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import orjson
import websockets


@dataclass(frozen=True)
class Frame:
    """One received frame; `at` is `time.time()` at its arrival."""

    at: float
    message: dict[str, Any]


class RpcFailure(Exception):
    """The server answered a call with an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error.get('code')}: {error.get('message')}")
        self.error = error


def allow(kind: str = "allow_once") -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Answers every permission request with its first option of this kind."""

    def answer(params: dict[str, Any]) -> dict[str, Any]:
        option = next(item for item in params["options"] if item["kind"] == kind)
        return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}

    return answer


class AcpClient:
    """`async with AcpClient(url, token) as client: …`. `etude=True` announces our extensions."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        etude: bool = True,
        permission: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        headers: dict[str, str] | None = None,
        on_frame: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.url, self.token, self.etude = url.replace("http", "ws", 1) + "/acp", token, etude
        self.permission, self.headers, self.on_frame = permission or allow(), headers or {}, on_frame
        self.frames: list[Frame] = []
        self.closed: int | None = None
        self._ids = itertools.count(1)
        self._pending: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def __aenter__(self) -> Self:
        headers = {"Authorization": f"Bearer {self.token}", **self.headers}
        self.socket = await websockets.connect(
            self.url, additional_headers=headers, max_size=None, compression=None
        )
        self._reader = asyncio.create_task(self._read())
        capabilities = {"_meta": {"etude": {"attach": True}}} if self.etude else {}
        await self.call("initialize", protocolVersion=1, clientCapabilities=capabilities)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.socket.close()
        self._reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reader

    def abort(self) -> None:
        """Drop the TCP connection without a close frame."""
        self.socket.transport.abort()

    async def call(self, method: str, timeout: float = 60, **params: Any) -> Any:
        """Send a request and wait for its result. Raises `RpcFailure` on an error answer."""
        id = await self.send(method, **params)
        try:
            answer = await asyncio.wait_for(self._pending[id], timeout)
        finally:
            self._pending.pop(id, None)
        if "error" in answer:
            raise RpcFailure(answer["error"])
        return answer["result"]

    async def send(self, method: str, **params: Any) -> int:
        """Send a request without waiting; its id."""
        id = next(self._ids)
        self._pending[id] = asyncio.get_running_loop().create_future()
        await self.socket.send(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
        return id

    async def notify(self, method: str, **params: Any) -> None:
        await self.socket.send(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}))

    async def new_session(self, cwd: object, **params: Any) -> str:
        result = await self.call("session/new", cwd=str(cwd), **{"mcpServers": [], **params})
        session = result["sessionId"]
        if self.etude:
            await self.call("_etude/attach", sessionId=session, afterSeq=0)
        return session

    async def prompt(
        self, session: str, text: str, *, message_id: str | None = None, timeout: float = 120
    ) -> Any:
        meta = {"_meta": {"etude": {"clientMessageId": message_id}}} if message_id else {}
        block = [{"type": "text", "text": text}]
        return await self.call("session/prompt", timeout=timeout, sessionId=session, prompt=block, **meta)

    def of(self, method: str) -> list[dict[str, Any]]:
        """Parameters of every received message of a method."""
        return [frame.message["params"] for frame in self.frames if frame.message.get("method") == method]

    def updates(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Received `session/update` parameters, of one kind or of all."""
        return [
            params
            for params in self.of("session/update")
            if kind is None or params["update"]["sessionUpdate"] == kind
        ]

    def text(self) -> str:
        """The agent's text as this client assembled it from its live chunks (one message after another)."""
        return "".join(
            params["update"]["content"]["text"]
            for params in self.updates("agent_message_chunk")
            if params.get("_meta", {}).get("etude", {}).get("live", True)
        )

    async def until(self, what: Callable[[Self], Any], timeout: float = 30) -> Any:
        """Wait until a condition on what was received holds; its value."""
        deadline = time.monotonic() + timeout
        while not (value := what(self)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not seen within {timeout} s; last frames: {self.frames[-3:]}")
            await asyncio.sleep(0.005)
        return value

    async def _read(self) -> None:
        try:
            async for data in self.socket:
                came, message = time.time(), orjson.loads(data)
                self.frames.append(Frame(came, message))
                if self.on_frame is not None:
                    self.on_frame(message)
                if "method" in message and "id" in message:
                    await self._answer(message)
                elif message.get("id") in self._pending and "method" not in message:
                    future = self._pending[message["id"]]
                    if not future.done():
                        future.set_result(message)
        except websockets.ConnectionClosed:
            pass
        finally:
            self.closed = self.socket.close_code
            for future in self._pending.values():
                if not future.done():
                    future.set_exception(ConnectionError(f"connection closed ({self.closed})"))
                    future.exception()

    async def _answer(self, message: dict[str, Any]) -> None:
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] == "session/request_permission":
            reply["result"] = self.permission(message["params"])
        else:
            reply["error"] = {"code": -32601, "message": "Method not found"}
        await self.socket.send(json.dumps(reply))
