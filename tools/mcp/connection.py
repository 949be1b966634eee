"""One MCP server: started or reached, asked for its tools, called, ended."""

import asyncio
import contextlib
import logging
import os
import shutil
import sys
import tempfile
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final, TextIO

from tools.errors import EnvironmentFault, ToolError, ToolTimeout
from tools.mcp.spec import McpSpec
from tools.mcp.stdio import stdio
from tools.sandbox import unconfined
from tools.tool import Progress

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult
    from mcp.types import Tool as Definition

log = logging.getLogger(__name__)

CONNECT_S: Final = 30.0
CALL_S: Final = 120.0
_CLOSE_S: Final = 10.0
_MOST_TOOLS: Final = 128
_LAST_WORDS: Final = 2000


class McpConnection:
    """The connection lives in a task of its own, which `start` makes and `close` ends.

    A program is started below a process that ends all it started when this server ends, however it does.
    """

    def __init__(self, spec: McpSpec, root: str) -> None:
        self.spec, self._root = spec, root
        self._client: Client | None = None
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._said: deque[bytes] = deque(maxlen=16)
        self._lock = asyncio.Lock()

    @property
    def alive(self) -> bool:
        return self._client is not None and self._task is not None and not self._task.done()

    async def start(self) -> "list[Definition]":
        """Connect and ask for the tools.

        Raises:
            EnvironmentFault: it cannot be started or reached, or does not speak the protocol.
        """
        async with self._lock:
            await self._end()
            ready: asyncio.Future[list[Definition]] = asyncio.get_running_loop().create_future()
            self._stop.clear()
            self._task = asyncio.create_task(self._live(ready), name=f"mcp {self.spec.name}")
            try:
                async with asyncio.timeout(CONNECT_S):
                    return await asyncio.shield(ready)
            except TimeoutError:
                await self._end()
                raise self._fault(f"did not answer within {CONNECT_S:g} s") from None
            except asyncio.CancelledError:
                await self._end()
                raise

    async def call(self, tool: str, arguments: dict[str, Any], told: Progress) -> "CallToolResult":
        """Call one tool; a server that has ended is started again first.

        Raises:
            ToolTimeout: no answer in time.
            EnvironmentFault: the server failed.
        """
        if not self.alive:
            await self.start()
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED, CallToolResult

        async def report(progress: float, total: float | None, message: str | None) -> None:
            share = f"{progress:g}" + (f" of {total:g}" if total else "")
            told(f"{message or 'progress'} ({share})\n")

        client, task = self._client, self._task
        assert client is not None and task is not None
        call = asyncio.ensure_future(client.call_tool(tool, arguments, progress_callback=report))
        try:
            await asyncio.wait({call, task}, timeout=CALL_S, return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                if task.done():
                    raise self._fault("ended during the call; it may or may not have acted")
                raise ToolTimeout(f"MCP server {self.spec.name!r} did not answer within {CALL_S:g} s.")
            result = call.result()
        except MCPError as error:
            if error.error.code == CONNECTION_CLOSED:
                self._client = None  # the next call starts it again
                raise self._fault("ended during the call; it may or may not have acted") from error
            raise EnvironmentFault(
                f"MCP server {self.spec.name!r} refused the call: {str(error)[:2000]}"
            ) from error
        except (ToolError, asyncio.CancelledError):
            raise
        except Exception as error:  # whatever the library raises is a failed call, not a defect of ours
            raise self._fault(f"failed: {type(error).__name__}: {str(error)[:500]}") from error
        finally:
            call.cancel()
            await asyncio.wait({call}, timeout=1)
        if not isinstance(result, CallToolResult):
            raise self._fault("answered with something that is no result of a tool")
        return result

    async def close(self) -> None:
        """End the connection and the program."""
        async with self._lock:
            await self._end()

    async def _end(self) -> None:
        task, self._task = self._task, None
        if task is None:
            return
        self._stop.set()
        done, _ = await asyncio.wait({task}, timeout=_CLOSE_S)
        if not done:
            task.cancel()
            await asyncio.wait({task}, timeout=_CLOSE_S)

    async def _live(self, ready: "asyncio.Future[list[Definition]]") -> None:
        try:
            async with self._opened() as client:
                definitions = await _listed(client)
                self._client = client
                if not ready.done():
                    ready.set_result(definitions)
                await self._stop.wait()
        except Exception as error:  # noqa: BLE001 - a server may fail in any way; it must not end a session
            log.info("MCP server %s ended: %s", self.spec.name, _reason(error))
            if not ready.done():
                ready.set_exception(self._fault(f"could not be used: {_reason(error)}"))
        finally:
            self._client = None
            if not ready.done():
                ready.set_exception(self._fault("was ended"))
            if not ready.cancelled():
                ready.exception()  # whoever waited may be gone

    @contextlib.asynccontextmanager
    async def _opened(self) -> "AsyncIterator[Client]":
        mcp = await asyncio.to_thread(_library)
        from mcp.types import Implementation, ListRootsResult, Root

        async def roots(*_: object) -> ListRootsResult:
            return ListRootsResult.model_validate({"roots": [Root.model_validate({"uri": self._root})]})

        async with contextlib.AsyncExitStack() as stack:
            if self.spec.url:
                transport = await self._reached(stack)
            else:
                transport = self._started(stack.enter_context(_last_words(self._said)))
            client = mcp.Client(
                transport, list_roots_callback=roots, client_info=Implementation(name="etude", version="0")
            )
            yield await stack.enter_async_context(client)

    async def _reached(self, stack: contextlib.AsyncExitStack) -> Any:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        from tools.mcp.bounded import Bounded

        # Redirects stay off: the transport follows those within the server's own origin.
        timeout = httpx2.Timeout(CONNECT_S, read=CALL_S * 2)
        transport = Bounded(self._complain)
        client = httpx2.AsyncClient(headers=dict(self.spec.headers), timeout=timeout, transport=transport)
        http = await stack.enter_async_context(client)
        return streamable_http_client(self.spec.url, http_client=http)

    def _started(self, errors: TextIO) -> Any:
        environment = {**_inherited(), **self.spec.env}
        program = shutil.which(self.spec.command, path=environment.get("PATH"))
        if program is None:
            raise EnvironmentFault(
                f"there is no program {self.spec.command!r}; install it, or correct its command"
            )
        command = [sys.executable, "-I", "-S", unconfined.__file__, str(os.getpid()), program]
        # Never in the workspace: interpreters and package runners execute what they find where they start.
        folder = tempfile.gettempdir()
        return stdio([*command, *self.spec.args], environment, folder, errors, self._complain)

    def _complain(self, about: str) -> None:
        self._said.append(f"\n({about} was not taken)".encode())

    def _fault(self, what: str) -> EnvironmentFault:
        said = b"".join(self._said)[-_LAST_WORDS:].decode("utf-8", "replace").strip()
        words = f" Its last words: {said}" if said else ""
        return EnvironmentFault(f"MCP server {self.spec.name!r} {what}.{words}")


def _library() -> Any:
    """The protocol library: a second of imports, so it comes when the first server is connected."""
    import mcp
    import mcp.client.streamable_http
    import mcp.types

    return mcp


def _inherited() -> dict[str, str]:
    """What a server's program gets of our environment: nothing that could be a secret."""
    names = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
    return {name: os.environ[name] for name in names if name in os.environ}


async def _listed(client: "Client") -> "list[Definition]":
    """All tools, page by page, as far as there is room for them."""
    found: list[Definition] = []
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        if len(found) > _MOST_TOOLS:
            log.warning("an MCP server offers more than %d tools; the rest is left out", _MOST_TOOLS)
            return found[:_MOST_TOOLS]
        if not page.next_cursor or page.next_cursor == cursor:
            return found
        cursor = page.next_cursor


@contextlib.contextmanager
def _last_words(said: "deque[bytes]") -> Any:
    """A file to write errors to; the newest of what is written is kept in `said`."""
    loop = asyncio.get_running_loop()
    read, write = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(read, False)

    def take() -> None:
        data = os.read(read, 4096)
        if data:
            said.append(data)
        else:
            loop.remove_reader(read)

    said.clear()
    loop.add_reader(read, take)
    try:
        with os.fdopen(write, "w") as file:
            yield file
    finally:
        loop.remove_reader(read)
        os.close(read)


def _reason(error: BaseException) -> str:
    """The first real cause below groups of exceptions."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, ToolError):
        return error.message
    return f"{type(error).__name__}: {str(error)[:500]}".rstrip(": ")
