"""Writes that a cancellation cannot cut in two: nothing is written, or what was written is reported."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from tools.errors import ToolError

Done = TypeVar("Done")


class _Stopped(ToolError):
    """The call was cancelled before anything was written."""

    error_class = "aborted"


async def finished(work: Callable[[Callable[[], None]], Done]) -> Done:
    """Run a write in a thread. Cancelled before its last step, nothing is written and the cancellation
    goes on; after it, the result is returned first, so that what was written is in the log, and the
    cancellation is delivered at the caller's next await."""
    stopped = threading.Event()

    def check() -> None:
        if stopped.is_set():
            raise _Stopped("The edit was cancelled; nothing was written.")

    thread = asyncio.ensure_future(asyncio.to_thread(work, check))
    cancelled = False
    while not thread.done():
        try:
            await asyncio.wait({thread})
        except asyncio.CancelledError:
            cancelled = True
            stopped.set()
    if cancelled:
        if thread.exception() is not None:
            raise asyncio.CancelledError
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()
        task.cancel()
    return thread.result()
