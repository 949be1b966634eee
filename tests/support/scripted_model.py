"""A scripted OpenAI-compatible model behind a real HTTP endpoint, for tests, benchmarks and examples.

In a test:

    with ScriptedModel(["hello", {"calls": [{"name": "read", "arguments": {"path": "a.py"}}]}]) as model:
        ...  # model.base_url, model.requests (bodies), model.port

As a process: `python tests/support/scripted_model.py PORT SCRIPT.json [LOG.jsonl]`. A process of its own
keeps the model's work out of a measurement; `ScriptedProcess` starts one.
"""

import asyncio
import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import orjson

if not __package__:  # run by its path: only its own folder is on the path then
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.scripted_turns import (
    Script,
    Turn,
    TurnLike,
    first_user_message,
    stream,
    turn_of,
    usage_of,
    whole,
)

__all__ = ["Script", "ScriptedModel", "ScriptedProcess", "Turn", "TurnLike"]


class _Play:
    """Which turn answers which request. One counter for each script."""

    def __init__(self, script: Script, loop: bool) -> None:
        self.script = script
        self.loop = loop
        self.counters: dict[str, itertools.count[int]] = {}

    def next(self, key: str, body: dict[str, Any]) -> tuple[int, Turn]:
        k = next(self.counters.setdefault(key, itertools.count()))
        if not isinstance(self.script, Sequence):
            return k, turn_of(self.script(body))
        if not self.script:
            return k, Turn()
        item: Any = self.script[k % len(self.script) if self.loop else min(k, len(self.script) - 1)]
        answer: Any = item(body) if callable(item) else item
        return k, turn_of(answer)


class ScriptedModel:
    """The endpoint, in a thread with an event loop of its own.

    The k-th request gets turn k; after the last, the last again, or the first with `loop`. With `keyed`
    every conversation (by its first user message) counts for itself; `sessions` gives scripts of their
    own to the conversations whose first user message contains the marker. A request without tools gets
    `toolless` where that is set, and is not counted. `window` makes longer prompts fail with `overflow`.
    """

    def __init__(
        self,
        turns: Script = (),
        *,
        sessions: Mapping[str, Script] | None = None,
        keyed: bool = False,
        loop: bool = False,
        toolless: TurnLike | None = None,
        window: int | None = None,
        overflow: TurnLike | None = None,
        model: str = "scripted",
        port: int = 0,
        key: str | None = None,
        pages: Mapping[str, Any] | None = None,
        log: Path | None = None,
    ) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.errors: list[str] = []
        """Defects of a script (a function that raised): a test may assert that there are none."""
        self.cut = 0
        """Streams whose client went away before their end."""
        self.streaming = 0
        self.connections = 0
        self.model = model
        self.port = port
        self.window = window
        self.key = key
        self.pages = dict(pages or {})
        """JSON answers to other GET paths, e.g. `/api/ps`."""
        self._play = _Play(turns, loop)
        self._sessions = {marker: _Play(script, loop) for marker, script in (sessions or {}).items()}
        self._keyed = keyed
        self._toolless = None if toolless is None else turn_of(toolless)
        self._overflow = None if overflow is None else turn_of(overflow)
        self._prompts: dict[str, bytes] = {}
        self._log = log.open("ab", buffering=0) if log is not None else None
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="scripted-model", daemon=True)
        self._failure: OSError | None = None

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait(10)
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(self, *_: object) -> None:
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def forget(self) -> None:
        """Keep nothing of the requests so far; call it while none is under way."""
        self.requests.clear()
        self.headers.clear()
        self._prompts.clear()

    def wait(self, condition: Callable[["ScriptedModel"], bool], seconds: float = 5) -> None:
        """Block until the endpoint has seen what is asked for. Raises `TimeoutError`."""
        deadline = time.monotonic() + seconds
        while not condition(self):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not so after {seconds} s: {len(self.requests)} requests, {self.cut} cut")
            time.sleep(0.005)

    def _run(self) -> None:
        asyncio.run(self.serve())

    async def serve(self) -> None:
        """Serve until stopped (`__exit__` does; a process is killed)."""
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        connections: set[_Connection] = set()
        try:
            server = await self._loop.create_server(
                lambda: _Connection(self, connections), "127.0.0.1", self.port, backlog=512
            )
        except OSError as error:
            self._failure = error
            self._ready.set()
            return
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        try:
            await self._stop.wait()
        finally:
            server.close()
            tasks = [connection.task for connection in connections if connection.task is not None]
            for connection in list(connections):
                connection.abort()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._log is not None:
                self._log.close()

    def answer(self, body: dict[str, Any], headers: dict[str, str]) -> tuple[str, Turn, dict[str, Any]]:
        """The turn for a request, its name, and its usage."""
        if self._log is not None:
            self._log.write(orjson.dumps({"t": time.time(), "body": body}) + b"\n")
        first = first_user_message(body)
        prompt = orjson.dumps([body.get("tools"), body.get("messages")])
        shared = _shared(self._prompts.get(first, b""), prompt)
        self._prompts[first] = prompt
        usage = {"prompt_tokens": len(prompt) // 4, "cached": shared // 4}
        self.requests.append(body)
        self.headers.append(headers)
        if self.key is not None and headers.get("authorization") != f"Bearer {self.key}":
            return "", Turn(status=401, error={"error": {"message": "Incorrect API key provided."}}), usage
        if self.window is not None and usage["prompt_tokens"] > self.window:
            message = f"This model's maximum context length is {self.window} tokens. However, your messages"
            error = {"message": f"{message} resulted in {usage['prompt_tokens']} tokens."}
            error |= {"type": "invalid_request_error", "code": "context_length_exceeded"}
            return "", self._overflow or Turn(status=400, error={"error": error}), usage
        if self._toolless is not None and not body.get("tools"):
            return "toolless", self._toolless, usage
        for marker, play in self._sessions.items():
            if marker in first:
                k, turn = play.next("", body)
                return f"{marker}_{k}", turn, usage
        k, turn = self._play.next(first if self._keyed else "", body)
        return str(k), turn, usage


def _shared(before: bytes, after: bytes) -> int:
    """Length of the common prefix, by bisection over slices."""
    low, high = 0, min(len(before), len(after))
    while low < high:
        middle = (low + high + 1) // 2
        if before[low:middle] == after[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


class _Connection(asyncio.Protocol):
    """One HTTP/1.1 connection; requests one after the other."""

    def __init__(self, model: ScriptedModel, all_connections: "set[_Connection]") -> None:
        self.model = model
        self.all = all_connections
        self.buffer = bytearray()
        self.task: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport | None = None
        self.midway = False
        self.closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.all.add(self)
        self.model.connections += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self.all.discard(self)
        self.transport = None
        if self.task is not None and not self.task.done():
            self.model.cut += self.midway
            self.task.cancel()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if self.task is None or self.task.done():
            self._take()

    def _take(self) -> None:
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self.buffer[:end]).decode("latin-1").split("\r\n")
        headers = {
            key.strip().lower(): value.strip() for key, _, value in (h.partition(":") for h in head[1:])
        }
        size = int(headers.get("content-length", 0))
        if len(self.buffer) < end + 4 + size:
            return
        body = bytes(self.buffer[end + 4 : end + 4 + size])
        del self.buffer[: end + 4 + size]
        method, path, *version = head[0].split(" ")
        self.closing = version == ["HTTP/1.0"] or headers.get("connection") == "close"
        self.task = asyncio.get_running_loop().create_task(self._respond(method, path, headers, body))

    async def _respond(self, method: str, path: str, headers: dict[str, str], raw: bytes) -> None:
        if path in self.model.pages:
            self._json(self.model.pages[path])
        elif method == "GET" and path != "/v1/models":
            self._json({"error": {"message": f"no such path: {path}"}}, 404)
        elif method == "GET":
            entry: dict[str, Any] = {"id": self.model.model, "object": "model", "owned_by": "etude"}
            if self.model.window is not None:
                entry["max_model_len"] = self.model.window
            self._json({"object": "list", "data": [entry]})
        elif path != "/v1/chat/completions":
            self._json({"error": {"message": f"no such path: {path}"}}, 404)
        else:
            try:
                body = orjson.loads(raw)
                name, turn, usage = self.model.answer(body, headers)
            except Exception as error:  # a script's defect must reach the test, not end the endpoint
                self.model.errors.append(repr(error))
                self._json({"error": {"message": f"the script failed: {error!r}"}}, 400)
            else:
                await self._play(body, name, turn, usage)
        if self.closing and self.transport is not None:
            self.transport.close()
        self._take()

    def _write(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)

    def _json(self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        body = value.encode() if isinstance(value, str) else orjson.dumps(value)
        lines = {"content-type": "application/json", **(headers or {}), "content-length": str(len(body))}
        head = "".join(f"{key}: {item}\r\n" for key, item in lines.items())
        self._write(f"HTTP/1.1 {status} Scripted\r\n{head}\r\n".encode() + body)

    async def _play(self, body: dict[str, Any], name: str, turn: Turn, usage: dict[str, Any]) -> None:
        if turn.first_ms:
            self.midway = True
            await asyncio.sleep(turn.first_ms / 1000)
            self.midway = False
        if turn.status != 200:
            error = turn.error
            if error is None:
                error = {"error": {"message": turn.text or "scripted error", "type": "scripted"}}
            self._json(error, turn.status, turn.headers)
            return
        if turn.raw_body:
            self._json(turn.raw_body, headers={"content-type": "text/html", **turn.headers})
            return
        usage = usage_of(turn, usage)
        if not body.get("stream"):
            self._json(whole(body, name, turn, usage, self.model.model), headers=turn.headers)
            return
        self.midway = True
        self.model.streaming += 1
        try:
            if await self._stream(body, name, turn, usage):
                self.midway = False
        finally:
            self.model.streaming -= 1

    async def _stream(self, body: dict[str, Any], name: str, turn: Turn, usage: dict[str, Any]) -> bool:
        """Send the chunks; False when the script cut the connection."""
        head = {"content-type": "text/event-stream", "transfer-encoding": "chunked", **turn.headers}
        lines = "".join(f"{key}: {item}\r\n" for key, item in head.items())
        self._write(f"HTTP/1.1 200 OK\r\n{lines}\r\n".encode())
        end = b"\r\n\r\n" if turn.crlf else b"\n\n"
        for sent, chunk in enumerate(stream(body, name, turn, usage, self.model.model)):
            if turn.garbage and sent == turn.garbage_after:
                for _ in range(turn.garbage_times):
                    self._frame(turn.garbage.encode("utf-8", "surrogateescape"))
                    await asyncio.sleep(turn.delay_ms / 1000 if turn.garbage_times > 1 else 0)
            if sent == turn.die_after:
                self.midway = False
                if self.transport is not None:
                    self.transport.close()
                return False
            if sent == turn.stall_after:
                await asyncio.Event().wait()
            self._frame(b"data: " + orjson.dumps(chunk) + end)
            await asyncio.sleep(turn.delay_ms / 1000)
        if turn.done:
            self._frame(b"data: [DONE]" + end)
        self._write(b"0\r\n\r\n")
        return True

    def _frame(self, data: bytes) -> None:
        self._write(b"%x\r\n%b\r\n" % (len(data), data))


class ScriptedProcess:
    """A `ScriptedModel` in a process of its own, for measurements: turns must be plain JSON."""

    def __init__(self, turns: Sequence[TurnLike], directory: Path) -> None:
        self.directory = directory
        self.turns = turns
        self.port = 0
        self._process: Any = None

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> Self:
        import subprocess

        script = self.directory / "script.json"
        script.write_bytes(orjson.dumps(list(self.turns)))
        command = [sys.executable, __file__, "0", str(script)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        self.port = int(self._process.stdout.readline())
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(10)
        self._process.stdout.close()


def main(arguments: Sequence[str]) -> None:
    """`PORT SCRIPT.json [LOG.jsonl]`: prints the port (useful with 0), serves until killed."""
    if len(arguments) not in (2, 3):
        raise SystemExit("usage: scripted_model.py PORT SCRIPT.json [LOG.jsonl]")
    model = ScriptedModel(
        orjson.loads(Path(arguments[1]).read_bytes()),
        port=int(arguments[0]),
        toolless="Summary: work so far.",
        log=Path(arguments[2]) if len(arguments) == 3 else None,
    )
    with model, contextlib.suppress(KeyboardInterrupt):
        print(model.port, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1:])
