"""The one child process that indexes, seen from the server: started when needed, again when it dies."""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Final

from tools.index.frames import BadFrame, packed, receive
from tools.index.parsing import MAX_BYTES, Parsed
from tools.index.state import State

log = logging.getLogger(__name__)

MAX_REQUESTS: Final = 64
"""Requests under way at once; more are answered at once that there is no index right now."""
MAX_DEATHS: Final = 12
QUIET_S: Final = 60.0
"""A child that died so often within a minute is not started again for a minute."""
OFTEN: Final = "the indexing process died too often; it is tried again in a minute"
GRACE_S: Final = 2.0
JOURNAL: Final = 8192
"""Bytes in which the child notes the file it works on, so that one that kills it is known."""

_INHERITED: Final = (
    *("HOME", "PATH"),
    *("PYTHONHOME", "PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"),
)
"""What the child gets of our environment: without the second line, where it is set, there is no Python."""

_CHILD: Final = Path(__file__).with_name("child.py")


class _Died(Exception):
    """The child ended before it answered."""


class Indexer:
    """Owns the child process. One serves all workspaces of a server, on one event loop.

    Everything that parses or writes happens in the child, which dies with this process however that ends.
    """

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._waiting: dict[int, asyncio.Future[tuple[dict[str, Any], bytes]]] = {}
        self._tasks: set[asyncio.Task[State]] = set()
        self._ids = count(1)
        self._states: dict[str, State] = {}
        self._users: dict[str, int] = {}
        self._deaths: list[float] = []
        self._suspects: list[tuple[str, bool]] = []
        self._journal = -1
        self._folder: Path | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The child's, while it runs."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    @property
    def working_on(self) -> str:
        """The file the child reads at this moment, "" between files."""
        return self._noted().partition(b"\n")[2].decode("utf-8", "replace") if self._journal >= 0 else ""

    def state(self, root: Path) -> State:
        return self._states.get(str(root), State())

    def temporary(self) -> Path:
        """A folder for indexes that nobody gave a place, deleted on `close`."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="etude-index-"))
        return self._folder

    # ---- requests

    async def refresh(
        self, root: Path, database: Path, paths: tuple[str, ...] | None, timeout_s: float
    ) -> State:
        """Index what changed, waiting so long at most. The work goes on when the time is over."""
        if len(self._tasks) >= MAX_REQUESTS:
            return State("unavailable", message="too many requests are under way; ask again in a moment")
        request = {"op": "refresh", "root": str(root), "database": str(database), "paths": paths}
        task = asyncio.create_task(self._until_done(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        done, _ = await asyncio.wait({task}, timeout=timeout_s)
        if done:
            return task.result()
        state = self.state(root)
        return replace(state, phase="warming") if state.phase == "fresh" else state

    async def _until_done(self, request: dict[str, Any]) -> State:
        """Ask until the child answers, however often it dies of what it reads."""
        while True:
            try:
                answer, _ = await self._ask(request)
            except _Died as death:
                if self._closed:
                    return State("unavailable", message=str(death))
                if len(self._deaths) >= MAX_DEATHS:
                    return State("unavailable", message=OFTEN)
                continue
            except OSError as error:
                return State(
                    "unavailable", message=f"the indexing process cannot be started ({error.strerror})"
                )
            return self._heard(answer)

    async def parse(self, path: str, data: bytes, timeout_s: float) -> Parsed | None:
        """Definitions and syntax errors of a text; None where it cannot be said."""
        if len(data) > MAX_BYTES or len(self._waiting) >= MAX_REQUESTS:
            return None
        try:
            async with asyncio.timeout(timeout_s):
                answer, body = await self._ask({"op": "parse", "path": path}, data)
        except (_Died, OSError, TimeoutError):
            return None
        return Parsed.unpacked(body) if answer.get("parsed") else None

    def use(self, root: Path) -> None:
        """One more uses this workspace's index, until it calls `forget`."""
        self._users[str(root)] = self._users.get(str(root), 0) + 1

    async def forget(self, root: Path) -> None:
        """One less does; the child closes what nobody uses any more."""
        self._users[str(root)] = self._users.get(str(root), 1) - 1
        if self._users[str(root)] > 0:
            return
        del self._users[str(root)]
        self._states.pop(str(root), None)
        if self.pid is not None:
            with contextlib.suppress(_Died):
                await self._ask({"op": "forget", "root": str(root)})

    async def _ask(self, message: dict[str, Any], data: bytes = b"") -> tuple[dict[str, Any], bytes]:
        number = next(self._ids)
        async with self._lock:
            process = await self._running()
            future: asyncio.Future[tuple[dict[str, Any], bytes]] = asyncio.get_running_loop().create_future()
            self._waiting[number] = future
        try:
            assert process.stdin is not None
            process.stdin.write(packed({**message, "id": number}, data))
            with contextlib.suppress(ConnectionError):  # the reader tells
                await process.stdin.drain()
            return await future
        finally:
            self._waiting.pop(number, None)

    # ---- the process

    async def _running(self) -> asyncio.subprocess.Process:
        if self._closed:
            raise _Died("the index is closed")
        if self._process is not None and self._reader is not None and not self._reader.done():
            return self._process
        now = time.monotonic()
        self._deaths = [at for at in self._deaths if now - at < QUIET_S]
        if len(self._deaths) >= MAX_DEATHS:
            raise _Died(OFTEN)
        if self._journal < 0:
            self._journal = _memory()
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", str(_CHILD), str(os.getpid()), str(self._journal)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd="/",
            env={
                "LC_ALL": "C.UTF-8",
                **{key: os.environ[key] for key in _INHERITED if key in os.environ},
            },
            pass_fds=(self._journal,),
        )
        self._reader = asyncio.create_task(self._read(self._process))
        assert self._process.stdin is not None
        suspects, self._suspects = self._suspects, []
        for file, slow in suspects:
            self._process.stdin.write(packed({"op": "crashed", "id": 0, "file": file, "slow": slow}))
        return self._process

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        """Hand answers to who waits for them, until the child ends."""
        assert process.stdout is not None
        try:
            while (received := await receive(process.stdout)) is not None:
                message, data = received
                if message.get("op") == "progress":
                    self._heard(message)
                elif (future := self._waiting.get(message["id"])) is not None and not future.done():
                    future.set_result((message, data))
        except BadFrame as error:
            log.error("the indexing process is not understood and is ended: %s", error)
            process.kill()
        finally:
            await _ended(process)
            if not self._closed:
                self._mourn(process.returncode)
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(_Died("the indexing process ended"))

    def _mourn(self, code: int | None) -> None:
        noted = self._noted()
        slow = code == -signal.SIGPROF
        if not slow:  # each file can be too slow but once
            self._deaths.append(time.monotonic())
        os.pwrite(self._journal, b"\0", 0)
        log.warning("the indexing process ended with %s at %r", code, os.fsdecode(noted))
        if noted:
            self._suspects.append((noted.hex(), slow))

    def _noted(self) -> bytes:
        return os.pread(self._journal, JOURNAL, 0).partition(b"\0")[0]

    def _heard(self, message: dict[str, Any]) -> State:
        state = State(
            message["phase"], message["done"], message["total"], message["left_out"], message["message"]
        )
        self._states[message["root"]] = state
        return state

    async def close(self) -> None:
        """End the child and everything asked of it."""
        self._closed = True
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()  # it ends at the end of its input
        if self._process is not None and self._reader is not None:
            await _ended(self._process)
            await self._reader
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._journal >= 0:
            os.close(self._journal)
            self._journal = -1
        if self._folder is not None:
            await asyncio.to_thread(shutil.rmtree, self._folder, True)


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Wait for a process that ends by itself; one that does not is killed. (To kill one that has just ended
    would take its status from whoever waits for it.)"""
    try:
        async with asyncio.timeout(GRACE_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _memory() -> int:
    """A descriptor of a few bytes of memory that a child can be given."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("etude-index", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
