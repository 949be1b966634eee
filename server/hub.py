"""All live sessions and all connections of one server."""

import asyncio
import logging
import platform
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.events import Mode, SessionCreated
from agent.log import LogError
from server.acp.connection import Connection, notification
from server.forgetting import forget_files, release_files
from server.live import LiveSession
from server.metrics import Metrics
from server.opener import Opener, check_workspace, narrowed
from server.places import cache_dir
from server.revoking import revoke
from server.store import RuleRow, SessionBusy, SessionRow, Store, StoreError, UnknownSession
from server.upkeep import Upkeep
from server.version import VERSION

if TYPE_CHECKING:
    from server.settings import Settings

log = logging.getLogger(__name__)

HEARTBEAT_S = 20.0
SILENT_BEATS = 3
"""Heartbeats without any frame of a client that answers them, after which it is closed."""
IDLE_S = 900.0
"""After so long without a prompt a session lets go of its shell, its lease and its memory."""
STOPPING, SILENT = 1001, 4408


class Hub:
    """Finds, makes and ends live sessions; beats the heart; knows every connection."""

    def __init__(self, settings: "Settings", store: Store, metrics: Metrics, workspaces: list[Path]) -> None:
        self.settings, self.store, self.metrics, self.workspaces = settings, store, metrics, workspaces
        self.opener = Opener(settings, store, metrics)
        self.sessions: dict[str, LiveSession] = {}
        self.connections: set[Connection] = set()
        self.stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._ending: dict[str, asyncio.Future[None]] = {}
        """Sessions that are being closed or deleted: whoever asks for one waits for that."""
        self._owned: set[asyncio.Task[None]] = set()

    # ---- life

    def start(self) -> None:
        """Begin the heartbeat, the unloading of idle sessions and the upkeep."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._beat()),
            loop.create_task(self._unload_idle()),
            loop.create_task(self.upkeep().run(), name="upkeep"),
        ]

    def upkeep(self) -> Upkeep:
        """What is done for the disk."""
        return Upkeep(
            self.settings,
            self.store,
            self.opener.snapshots,
            cache_dir(),
            busy=lambda: any(live.busy for live in self.sessions.values()),
            opened=lambda: tuple(self.sessions),
            expire=self.expire,
        )

    async def stop(self) -> None:
        """Close every connection with 1001, end every turn, give every lease back."""
        self.stopping = True
        for task in self._tasks:
            task.cancel()
        for connection in tuple(self.connections):
            connection.abort(STOPPING, "the server is stopping")
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._owned:
            await asyncio.wait(self._owned)
        lives = tuple(self.sessions.values())
        for live, result in zip(
            lives,
            await asyncio.gather(*(live.close(stopping=True) for live in lives), return_exceptions=True),
            strict=True,
        ):
            if isinstance(result, BaseException):
                log.error("session %s was not closed cleanly", live.id, exc_info=result)
        self.sessions.clear()
        await self.opener.close()

    # ---- connections

    def joined(self, connection: Connection) -> None:
        self.connections.add(connection)
        self.metrics.connections.inc()

    def gone(self, connection: Connection) -> None:
        """Its sessions go on without it."""
        self.connections.discard(connection)
        self.metrics.connections.dec()
        for live in tuple(self.sessions.values()):
            live.detach(connection)
            self._forget_unused(live)

    # ---- sessions

    async def create(
        self, cwd: str, connection: Connection, mode: Mode | None = None, model: str | None = None
    ) -> LiveSession:
        """A new session in a folder; mode and model are the configured ones unless given.

        Raises:
            WorkspaceRefused: the folder cannot be a workspace.
        """
        root = Path(cwd)
        await asyncio.to_thread(check_workspace, root)
        root = await asyncio.to_thread(root.resolve)
        settings = await asyncio.to_thread(narrowed, self.settings, root)
        model = model or settings.agent.model or await self.opener.default_model()
        record = SessionCreated(
            workspace=str(root),
            user_id=connection.user_id,
            model=model,
            mode=mode or settings.agent.mode,
            profile=self.opener.profile(model),
            consent=settings.privacy.consent,
            client=connection.client or None,
            harness={"etude": VERSION, "python": platform.python_version()},
        )
        session_id = await self.store.create_session(record)
        return self._add(await self.store.session(session_id))

    def loaded(self, session_id: str, user_id: str) -> LiveSession | None:
        """A session that is in memory, without waiting."""
        live = self.sessions.get(session_id)
        return live if live is not None and live.user_id == user_id else None

    async def find(self, session_id: str, user_id: str) -> LiveSession:
        """A session of this user.

        Raises:
            UnknownSession: there is none, or it is somebody else's.
        """
        if (live := self.loaded(session_id, user_id)) is not None:
            return live
        while True:
            await self._ended(session_id)
            row = await self.row(session_id, user_id)
            if session_id not in self._ending:
                return self.sessions.get(session_id) or self._add(row)

    async def row(self, session_id: str, user_id: str) -> SessionRow:
        """What the store says of a session of this user. Raises `UnknownSession`."""
        row = await self.store.session(session_id)
        if row.user_id != user_id:
            raise UnknownSession(session_id)
        return row

    async def delete(self, session_id: str, user_id: str) -> None:
        """End and delete a session. Raises `UnknownSession`, and `SessionBusy` if another process has it."""

        async def work() -> None:
            async with self._end(session_id):
                await self.row(session_id, user_id)
                if (live := self.sessions.pop(session_id, None)) is not None:
                    for connection in tuple(live.subscribers):
                        live.detach(connection)
                    await live.close()
                forks = await self.store.delete_session(session_id)
                await forget_files(self.opener.snapshots, session_id, forks)

        await self._own(work())

    async def expire(self, row: SessionRow, unused_since: int) -> bool:
        """Delete a session that was not used since a time (microseconds UTC); False where it was, or is open
        here or in another server. What only it needed is left for the next sweep."""
        gone = False

        async def work() -> None:
            nonlocal gone
            async with self._end(row.id):
                live = self.sessions.get(row.id)
                if live is not None and not live.unused:
                    return
                try:
                    forks = await self.store.expire_session(row.id, unused_since)
                except SessionBusy:
                    return
                if forks is None:
                    return
                self.sessions.pop(row.id, None)
                await release_files(self.opener.snapshots, row.id, forks)
                gone = True

        await self._own(work())
        return gone

    async def close(self, live: LiveSession, connection: Connection) -> None:
        """One client is done with a session; the last one ends what runs in it."""

        async def work() -> None:
            async with self._end(live.id):
                if not live.subscribers and self.sessions.get(live.id) is live:
                    del self.sessions[live.id]
                    await live.close()

        live.detach(connection)
        if not live.subscribers:
            await self._own(work())

    async def revoke(self, rule_id: str, user_id: str) -> RuleRow:
        """Take a rule of this user back, in open sessions at once.

        Raises:
            KeyError: the user has no such rule.
            SessionBusy: another process has a session whose log holds it.
        """
        rows = await self.store.rules(user_id=user_id)
        row = next((row for row in rows if row.id == rule_id), None)
        if row is None:
            raise KeyError(rule_id)

        async def work() -> None:
            opened = {live.id: live.session for live in self.sessions.values() if live.session is not None}
            try:
                await revoke(self.store, row, opened)
            finally:
                await self.opener.granted(user_id, row.workspace)

        await self._own(work())
        return row

    @asynccontextmanager
    async def _end(self, session_id: str) -> AsyncIterator[None]:
        """The right to end a session, one at a time."""
        await self._ended(session_id)
        done = self._ending[session_id] = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            del self._ending[session_id]
            done.set_result(None)
            self.metrics.sessions.set(len(self.sessions))

    async def _ended(self, session_id: str) -> None:
        while (ending := self._ending.get(session_id)) is not None:
            await asyncio.wait({ending})

    def _own(self, work: Coroutine[Any, Any, None]) -> "asyncio.Future[None]":
        """Do what must not be left half done when the client that asked for it goes away."""
        task = asyncio.get_running_loop().create_task(work)
        self._owned.add(task)
        task.add_done_callback(self._owned.discard)
        return asyncio.shield(task)

    def _add(self, row: SessionRow) -> LiveSession:
        live = LiveSession(row, self.store, self.opener)
        self.sessions[row.id] = live
        self.metrics.sessions.set(len(self.sessions))
        return live

    def _forget_unused(self, live: LiveSession) -> None:
        if live.unused:
            self.sessions.pop(live.id, None)
            self.metrics.sessions.set(len(self.sessions))

    # ---- what goes on beside

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            attached: dict[Connection, dict[str, int]] = {}
            for live in self.sessions.values():
                for connection, subscriber in live.subscribers.items():
                    if subscriber.extended:
                        attached.setdefault(connection, {})[live.id] = live.delivered
            for connection in tuple(self.connections):
                if connection.beats and loop.time() - connection.heard > SILENT_BEATS * HEARTBEAT_S:
                    connection.abort(SILENT, f"silent for {SILENT_BEATS} heartbeats")
                elif connection.speaks_etude or connection in attached:
                    sessions: dict[str, Any] = {"sessions": attached.get(connection, {})}
                    connection.put(notification("_etude/heartbeat", sessions))

    async def _unload_idle(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(IDLE_S / 15)
            for live in tuple(self.sessions.values()):
                if live.busy or loop.time() - live.touched < IDLE_S:
                    continue
                try:
                    await live.unload()
                except (StoreError, LogError, OSError) as error:
                    log.warning("session %s was not let go of cleanly: %s", live.id, error)
                self._forget_unused(live)
