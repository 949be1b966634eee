"""A program's standard streams as the transport of the protocol library, with bounds that it lacks.

A message is one line. A line that is too long ends the connection: what is read of it is never copied again
and again, and never parsed on the event loop.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.shared.message import SessionMessage

LINE: Final = 4 * 1024 * 1024
"""Bytes of one message."""
_SMALL: Final = 64 * 1024
"""Bytes up to which a message is parsed at once."""
_FLUSH_S, _EXIT_S, _KILL_S = 1.0, 2.0, 3.0


@contextlib.asynccontextmanager
async def stdio(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: str,
    errors: TextIO,
    complain: Callable[[str], None],
) -> "AsyncIterator[tuple[Any, Any]]":
    """Start the program and yield the two streams; at the end it and its group are ended.

    `complain` is told why the connection was given up.
    """
    import anyio
    from mcp.shared.message import SessionMessage

    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=errors,
        env=dict(environment),
        cwd=folder,
        start_new_session=True,
        limit=LINE,
    )
    incoming, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    sent, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    reading = asyncio.create_task(_read(process, incoming, complain))
    writing = asyncio.create_task(_write(process, outgoing, incoming))
    try:
        yield received, sent
    finally:
        received.close()
        sent.close()
        await asyncio.wait({writing}, timeout=_FLUSH_S)
        await _end(process)
        for task in (reading, writing):
            task.cancel()
        await asyncio.wait({reading, writing})
        await _drain(process)
        for stream in (incoming, outgoing):
            stream.close()


async def _read(
    process: asyncio.subprocess.Process,
    incoming: "MemoryObjectSendStream[SessionMessage | Exception]",
    complain: Callable[[str], None],
) -> None:
    import anyio

    assert process.stdout is not None
    try:
        while line := await process.stdout.readline():
            message = _parsed(line) if len(line) < _SMALL else await asyncio.to_thread(_parsed, line)
            await incoming.send(message)
    except ValueError:  # how the reader says that its limit is passed
        complain(f"a message of more than {LINE >> 20} MiB")
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError):
        pass  # nobody listens any more
    finally:
        incoming.close()


def _parsed(line: bytes) -> "SessionMessage | Exception":
    from mcp.shared.message import SessionMessage
    from mcp.types import jsonrpc_message_adapter

    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


async def _write(
    process: asyncio.subprocess.Process,
    outgoing: "MemoryObjectReceiveStream[SessionMessage]",
    incoming: "MemoryObjectSendStream[SessionMessage | Exception]",
) -> None:
    assert process.stdin is not None
    try:
        async for item in outgoing:
            text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(text.encode() + b"\n")
            await process.stdin.drain()
    except ConnectionError:
        incoming.close()  # whoever waits for an answer learns that none will come


async def _drain(process: asyncio.subprocess.Process) -> None:
    """Read what is left, so that the pipe closes; its writers are gone."""
    assert process.stdout is not None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_FLUSH_S):
            while await process.stdout.read(1 << 20):
                pass


async def _end(process: asyncio.subprocess.Process) -> None:
    """Close its input, and insist: what it started is ended by the process it runs below."""
    assert process.stdin is not None
    process.stdin.close()
    for patience, number in ((_EXIT_S, signal.SIGTERM), (_KILL_S, signal.SIGKILL)):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), patience)
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _KILL_S)
