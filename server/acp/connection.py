"""One JSON-RPC peer. It knows neither sessions nor transports, and no frame can end it."""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
from pydantic import BaseModel, ValidationError

from server.wire import nests_deeper, to_json

log = logging.getLogger(__name__)

SOFT_LIMIT = 16 << 20
"""Characters of one incoming frame; longer ones are refused and the connection lives on."""
MAX_DEPTH = 64
"""Levels of an incoming frame: what is stored of it is wrapped further when it is shown."""
MAX_FRAMES, MAX_BYTES = 4096, 8 << 20
"""What may wait for a slow peer. Live frames are given up first, then the connection is."""
LARGE = 1 << 20
"""One larger frame may wait as if it had this size: it says nothing of the peer, and a long prompt must not
make its session impossible to read."""
ERROR_LIMIT = 16_384
"""Characters of the message of an error, and bytes of its data, that are sent."""
MAX_RUNNING = 1024
"""Requests of one peer that may be in progress."""
TOO_SLOW = 4429

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = (
    -32700,
    -32600,
    -32601,
    -32602,
    -32603,
)
REQUEST_CANCELLED, NOT_FOUND = -32800, -32002


class RpcError(Exception):
    """An answer that is an error: ours to send, or the peer's to us."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


class Shedding(Protocol):
    """Told that a live frame was given up: the peer will not see the characters from `offset` on."""

    def lost(self, offset: int) -> None: ...


class Frame:
    """One outgoing frame in the queue. `track` makes it a live one; `text` is None once it is gone."""

    __slots__ = ("offset", "size", "text", "track")

    def __init__(self, text: str, track: Shedding | None, offset: int) -> None:
        self.text: str | None = text
        self.size = len(text)
        self.track = track
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Answer:
    """A result, and what has to follow it in the same tick (so that nothing comes between them)."""

    result: Any
    then: Callable[[], None]


Handler = Callable[["Connection", Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Method:
    """A method the peer may call: the model of its parameters, and what answers it."""

    params: type[BaseModel]
    handle: Handler


def encode(message: dict[str, Any]) -> str:
    """A message as the text of one frame."""
    return to_json({"jsonrpc": "2.0", **message}).decode()


def notification(method: str, params: dict[str, Any]) -> str:
    """A notification as the text of one frame, to be sent to any number of connections."""
    return to_json({"jsonrpc": "2.0", "method": method, "params": params}).decode()


class Connection:
    """A peer: its queue of outgoing frames, its requests to us and ours to it.

    `write` awaits the transport, which is the backpressure; exactly one task runs `pump`. `abort` ends
    the connection with a close code. `clean` takes secrets out of JSON-like values that errors
    are made of. Everything else is synchronous, so the order of calls is the order
    on the wire.
    """

    def __init__(
        self,
        methods: Mapping[str, Method],
        write: Callable[[str], Awaitable[None]],
        abort: Callable[[int, str], None],
        *,
        user_id: str,
        clean: Callable[[Any], Any] = lambda value: value,
    ) -> None:
        self.methods, self.user_id = methods, user_id
        self.capabilities: dict[str, Any] = {}
        self.client: dict[str, Any] = {}
        self.ready = False
        self.closed = False
        self.speaks_etude = False
        self.beats = False
        """Whether the peer has ever answered a heartbeat; only then is its silence a sign."""
        self.heard = asyncio.get_running_loop().time()
        self._write, self._abort, self._clean = write, abort, clean
        self._queue: deque[Frame] = deque()
        self._size = 0
        self._large: Frame | None = None
        self._wake, self._drained = asyncio.Event(), asyncio.Event()
        self._pending: dict[str, asyncio.Future[Any]] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ids = itertools.count(1)

    @property
    def name(self) -> str:
        """How the peer is named in the log: its client's name, else its user."""
        return str(self.client.get("name") or self.user_id)

    @property
    def backlog(self) -> int:
        """Frames that wait for the transport."""
        return len(self._queue)

    @property
    def crowded(self) -> bool:
        """Whether much of what a peer may lag behind waits already."""
        return self._size > MAX_BYTES // 4

    # ---- outgoing

    @property
    def _holds_large(self) -> bool:
        return self._large is not None and self._large.text is not None

    def put(self, text: str, track: Shedding | None = None, offset: int = 0) -> Frame:
        """Queue a frame. A live one (`track`) may be given up when the peer is slow."""
        frame = Frame(text, track, offset)
        if self.closed:
            frame.text = None
            return frame
        if frame.size > LARGE and not self._holds_large:
            self._large, frame.size = frame, LARGE
        if not self._room(frame.size):
            self._shed()
            if track is not None:
                frame.text = None
                track.lost(offset)
                return frame
            if self._queue and not self._room(frame.size):
                self.abort(TOO_SLOW, "too slow: attach again from the last seq")
                return frame
        self._queue.append(frame)
        self._size += frame.size
        self._wake.set()
        return frame

    def drop(self, frame: Frame) -> None:
        """Take a frame that has not been sent out of the queue."""
        if frame.text is not None:
            frame.text = None
            self._size -= frame.size

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self.put(notification(method, params))

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        """Ask the peer. When the caller is cancelled, the peer is told so.

        Raises:
            RpcError: the peer answered with an error.
            ConnectionError: the connection ended first.
        """
        if self.closed:
            raise ConnectionError("the connection is closed")
        id = next(self._ids)
        future = self._pending[str(id)] = asyncio.get_running_loop().create_future()
        self.put(encode({"id": id, "method": method, "params": params}))
        try:
            return await future
        except asyncio.CancelledError:
            self.notify("$/cancel_request", {"requestId": id})
            raise
        finally:
            self._pending.pop(str(id), None)

    async def pump(self) -> None:
        """Send what is queued, for ever. Raises what `write` raises."""
        while True:
            while self._queue:
                frame = self._queue.popleft()
                if frame.text is None:
                    continue
                text, frame.text = frame.text, None
                self._size -= frame.size
                await self._write(text)
            self._drained.set()
            self._wake.clear()
            await self._wake.wait()

    async def drained(self) -> None:
        """Wait until a bulk sender may go on: the queue is short or the connection ended."""
        while not self.closed and (len(self._queue) > 64 or self._size > MAX_BYTES // 4 or self._holds_large):
            self._drained.clear()
            await self._drained.wait()

    def abort(self, code: int, reason: str) -> None:
        """End the connection: nothing queued is sent any more, the peer gets the close code."""
        if not self.closed:
            self.finish()
            self._abort(code, reason)

    def finish(self) -> None:
        """The transport is gone or going: let go of everything."""
        self.closed = True
        self._queue.clear()
        self._size = 0
        self._drained.set()
        for task in tuple(self._tasks):
            task.cancel()
        for future in self._pending.values():
            if not future.done():
                future.set_exception(ConnectionError("the connection ended"))
                future.exception()  # whoever waits sees it; if nobody does, it is no defect

    def _room(self, size: int) -> bool:
        return len(self._queue) < MAX_FRAMES and self._size + size <= MAX_BYTES

    def _shed(self) -> None:
        """Give up every live frame that has not been sent."""
        kept: deque[Frame] = deque()
        for frame in self._queue:
            if frame.text is None:
                continue
            if frame.track is None:
                kept.append(frame)
                continue
            self.drop(frame)
            frame.track.lost(frame.offset)
        self._queue = kept

    # ---- incoming

    def feed(self, data: str | None) -> None:
        """Take one frame. Never raises: no frame can end the connection."""
        self.heard = asyncio.get_running_loop().time()
        if data is None:
            return self._fail(None, INVALID_REQUEST, "Binary frames are not supported; send JSON text")
        if len(data) > SOFT_LIMIT:
            return self._fail(None, INVALID_REQUEST, "Frame too large", {"limit": SOFT_LIMIT})
        try:
            message = orjson.loads(data)
        except ValueError:
            return self._fail(None, PARSE_ERROR, "Parse error: a frame is one JSON object")
        if not isinstance(message, dict):
            return self._fail(None, INVALID_REQUEST, "Invalid request: a frame is one JSON object")
        id, params = message.get("id"), message.get("params")
        if not (id is None or type(id) in (int, str)):
            return self._fail(None, INVALID_REQUEST, "Invalid request: id must be a number or a string")
        if nests_deeper(message, MAX_DEPTH):
            return self._fail(id, INVALID_REQUEST, "Frame nested too deeply", {"limit": MAX_DEPTH})
        if "method" in message:
            return self._called(message["method"], id, {} if params is None else params, "id" in message)
        if "result" in message or "error" in message:
            return self._answered(str(id), message)
        return self._fail(id, INVALID_REQUEST, "Invalid request: neither a method nor an answer")

    def _called(self, method: Any, id: int | str | None, params: Any, wants_answer: bool) -> None:
        if not isinstance(method, str):
            return self._fail(id, INVALID_REQUEST, "Invalid request: method must be a string")
        if not isinstance(params, dict):
            if wants_answer:
                self._fail(id, INVALID_REQUEST, "Invalid request: params must be an object")
            return None
        if method == "$/cancel_request":
            if (running := self._running.get(str(params.get("requestId")))) is not None:
                running.cancel()
            return None
        if len(self._tasks) >= MAX_RUNNING:
            return self._fail(id, INVALID_REQUEST, "Too many requests in progress", {"limit": MAX_RUNNING})
        if wants_answer and str(id) in self._running:
            return self._fail(id, INVALID_REQUEST, "Invalid request: this id is in use")
        task = asyncio.get_running_loop().create_task(self._handle(method, id, params, wants_answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if wants_answer:
            self._running[str(id)] = task
            task.add_done_callback(lambda _: self._running.pop(str(id), None))
        return None

    def _answered(self, id: str, message: dict[str, Any]) -> None:
        future = self._pending.get(id)
        if future is None or future.done():
            return  # late: somebody else answered first
        error = message.get("error")
        if error is None:
            future.set_result(message.get("result"))
        elif isinstance(error, dict):
            code, text = error.get("code"), error.get("message")
            code = code if isinstance(code, int) else INTERNAL_ERROR
            future.set_exception(RpcError(code, str(text), error.get("data")))
        else:
            future.set_exception(RpcError(INTERNAL_ERROR, str(error)))

    async def _handle(self, method: str, id: int | str | None, params: Any, wants_answer: bool) -> None:
        def fail(code: int, message: str, data: Any = None) -> None:
            if wants_answer:
                self._fail(id, code, message, data)

        try:
            known = self.methods.get(method)
            if known is None:
                return fail(METHOD_NOT_FOUND, "Method not found", {"method": method[:200]})
            if not self.ready and method != "initialize":
                return fail(INVALID_REQUEST, "Not initialized: call initialize first")
            answer = await known.handle(self, known.params.model_validate(params))
            result, then = (answer.result, answer.then) if isinstance(answer, Answer) else (answer, None)
            if wants_answer:
                self.put(encode({"id": id, "result": result}))
            if then is not None:
                then()
        except ValidationError as error:
            problems = error.errors(include_url=False, include_input=False, include_context=False)
            fail(INVALID_PARAMS, f"Invalid params: {_problems(problems)}", {"problems": problems})
        except RpcError as error:
            fail(error.code, error.message, error.data)
        except asyncio.CancelledError:
            fail(REQUEST_CANCELLED, "Request cancelled")
        except Exception:
            log.exception("%s failed", method)
            fail(INTERNAL_ERROR, "Internal error: a defect in Etude; the server's log has the details")
        return None

    def _fail(self, id: int | str | None, code: int, message: str, data: Any = None) -> None:
        if len(message) > ERROR_LIMIT:
            message = f"{message[:ERROR_LIMIT]} […]"
        error = {"code": code, "message": self._clean(message)}
        # What is wrong with parameters names them, and they may be of any number and length.
        if data is not None and len(to_json(data)) <= ERROR_LIMIT:
            error["data"] = self._clean(data)
        self.put(encode({"id": id, "error": error}))


def _problems(errors: list[Any]) -> str:
    return "; ".join(f"{'.'.join(map(str, item['loc'])) or 'params'}: {item['msg']}" for item in errors[:8])
