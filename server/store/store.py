"""The store: sessions, their logs, and everything that is read from them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Self

from ulid import ULID

from agent.events import Draft, Event, SessionCreated
from agent.prompt_chain import Fetch, resolve, resolve_ids, split
from server.store import blobs, creation, leases, reader, rules, workspaces
from server.store.database import Database, open_backend
from server.store.deletion import delete_session
from server.store.errors import StoreError, UnknownBlob
from server.store.migrate import ensure_schema
from server.store.reader import SessionRow
from server.store.rebuild import rebuild
from server.store.recorder import INLINE_BYTES, Recorder
from server.store.rules import RuleRow
from server.store.session_log import SessionLog
from server.store.workspaces import WorkspaceRow

log = logging.getLogger(__name__)

PAGE: Final = 500
"""Events that are read and decoded in one piece: a few milliseconds."""


class Store:
    """One database, opened by one process. `Store.open(url)`, then `close()`.

    Everything that is written goes through one connection; what is read does not wait for it.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._backend = database.backend
        self._recorder = Recorder(database)
        self._me = leases.this_process()
        self._held: dict[str, int] = {}
        self._abandoned: dict[str, int] = {}
        """Terms given up that the database was not yet told of: it was full, or away."""
        self._renewing: asyncio.Task[None] | None = None
        self._closed = False

    @classmethod
    async def open(cls, url: str) -> Self:
        """Open a database, making it or bringing its schema up to date first.

        `url`: `sqlite:///PATH` or `postgresql://USER@HOST/NAME`.

        Raises:
            StoreError: it cannot be used; the message says why and what to do.
        """
        database = Database(open_backend(url))
        try:
            await ensure_schema(database)
        except BaseException:
            await database.close()
            raise
        return cls(database)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Store what was submitted, give up all leases, let the connections go."""
        if self._closed:
            return
        self._closed = True
        await self._recorder.close()
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])
        try:
            for session_id, term in [*self._held.items(), *self._abandoned.items()]:
                await self.let_go(session_id, term)
        except StoreError as error:
            log.warning("leases were not given up and run out by themselves: %s", error)
        finally:
            await self._database.close()

    # Sessions

    async def create_session(self, record: SessionCreated) -> str:
        """Make a session and store its first event; returns its id.

        With `parent_id` and `fork_seq` it goes on from there: its first event is `fork_seq + 1`. Where the
        workspace is known, its consent is the one that is recorded.

        Raises:
            UnknownSession: there is no such parent.
            StoreError: the parent has no event `fork_seq`.
        """
        session_id = str(ULID())
        await self._database.write(
            lambda connection: creation.create(self._backend, connection, session_id, record), barrier=True
        )
        return session_id

    async def lease(self, session_id: str) -> SessionLog:
        """Become the one writer of a session.

        Raises:
            UnknownSession: there is none.
            SessionBusy: a live process holds it (this one included).
        """
        taking = asyncio.create_task(self._take(session_id))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            # Nobody will hold what is being taken: without this it would be renewed for ever.
            with suppress(StoreError):
                await (await taking).release()
            raise

    async def session(self, session_id: str) -> SessionRow:
        """Raises `UnknownSession`."""
        return await self._database.read(
            lambda connection: reader.session(connection, session_id, self._backend.clock(connection))
        )

    async def sessions(
        self,
        *,
        user_id: str | None = None,
        workspace: str | None = None,
        query: str | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> list[SessionRow]:
        """Sessions, the last written to first.

        `query` is looked for in title and first prompt; `before` is the `cursor` (or the id) of the last row
        of the page before this one.
        """
        return await self._database.read(
            lambda connection: reader.session_list(
                connection,
                self._backend.clock(connection),
                user_id=user_id,
                workspace=workspace,
                query=query,
                limit=limit,
                before=before,
            )
        )

    async def delete_session(self, session_id: str) -> list[str]:
        """Remove a session and the content that nothing else names; returns its forks, which keep what they
        read.

        Raises:
            UnknownSession: there is none.
            SessionBusy: somebody holds it; release it first.
        """
        return await self._delete(session_id, None) or []

    async def expire_session(self, session_id: str, unused_since: int) -> list[str] | None:
        """As `delete_session`, unless it was written to at or after a time (microseconds UTC): then None."""
        return await self._delete(session_id, unused_since)

    # The log

    async def events(self, session_id: str, *, after: int = 0, limit: int = 1_000) -> list[Event]:
        """Up to `limit` events with `seq > after`, in order, through the parents of a fork.

        Decoded in pieces, so that nothing else waits for a long answer.

        Raises:
            UnknownSession: there is none.
        """
        found: list[Event] = []
        while True:
            start, size = found[-1].seq if found else after, min(PAGE, limit - len(found))
            page = await self._database.read(
                lambda connection, start=start, size=size: reader.page(connection, session_id, start, size)
            )
            found += page
            if len(page) < size or len(found) >= limit:
                return found

    async def pages(self, session_id: str, *, after: int = 0, size: int = PAGE) -> AsyncIterator[list[Event]]:
        """All events with `seq > after`, page by page, as far as they are stored when each page is read."""
        while page := await self.events(session_id, after=after, limit=size):
            yield page
            after = page[-1].seq

    async def all_events(self, session_id: str) -> list[Event]:
        """The whole log of a session. Raises `UnknownSession`."""
        return [event async for page in self.pages(session_id) for event in page]

    async def generation(self, id: str) -> dict[str, Any]:
        """One model call: the data of its event and its place, and its exact prompt.

        That is `messages` and `tools`, and `prompt_ids` where the engine's tokens are known (else None).

        Raises:
            UnknownGeneration: there is none.
        """
        event, nodes = await self._database.read(lambda connection: reader.generation(connection, id))
        fetch = _from(await _unpacked(nodes))
        messages, tools = split(await resolve(event.data["prompt"]["node"], fetch))
        node = (event.data.get("tokens") or {}).get("prompt")
        place = {"session_id": event.session_id, "seq": event.seq, "ts": event.ts}
        place |= {"turn": event.turn, "step": event.step}
        ids = None if node is None else await resolve_ids(node, fetch)
        return {**place, **event.data, "messages": messages, "tools": tools, "prompt_ids": ids}

    # Content

    async def blob(self, hash: str) -> bytes:
        """The content of this hash. Raises `UnknownBlob` (a `KeyError`)."""
        found = await self._database.read(lambda connection: blobs.read(connection, [hash]))
        if not found:
            raise UnknownBlob(f"there is no blob {hash}")
        return (await _unpacked(found))[hash]

    async def put_blobs(self, contents: Sequence[bytes]) -> list[str]:
        """Store content ahead of the event that will name it; returns the hashes.

        `sweep` removes what no event has named a day later.
        """
        packed = await asyncio.to_thread(blobs.pack_all, contents)
        fresh = {blob.hash: blob for blob in packed}
        await self._database.write(lambda connection: blobs.add(self._backend, connection, fresh, {}))
        return [blob.hash for blob in packed]

    async def sweep(self, *, older_us: int = 86_400_000_000) -> int:
        """Remove content that no event names and that is older than this; returns how many pieces went."""
        return await self._database.write(lambda connection: blobs.sweep(connection, older_us))

    # Workspaces, upkeep

    async def workspaces(self) -> list[WorkspaceRow]:
        """Every workspace, oldest first."""
        return await self._database.read(workspaces.all_rows)

    async def set_consent(self, path: str, consent: str, retention_days: int | None = None) -> WorkspaceRow:
        """What later events of a workspace may be used for. Raises `StoreError` for an unknown level."""
        return await self._database.write(
            lambda connection: workspaces.set_consent(
                self._backend, connection, path, consent, retention_days
            ),
            barrier=True,
        )

    async def rules(self, *, user_id: str | None = None, workspace: str | None = None) -> list[RuleRow]:
        """The rules that hold: of everybody and everywhere, or of one person or workspace."""
        return await self._database.read(lambda connection: rules.rule_rows(connection, user_id, workspace))

    async def inheritors(self, session_ids: tuple[str, ...]) -> tuple[str, ...]:
        """These sessions and all that were forked from them."""
        return await self._database.read(lambda connection: rules.descendants(connection, session_ids))

    async def tidy(self, pause: Callable[[], Awaitable[None]]) -> int:
        """What a database does for itself now and then; returns the bytes it gave back to the disk.

        `pause` is awaited between transactions, each of which takes a few milliseconds.
        """
        await self._database.write(self._backend.tidy)
        freed = 0
        while (more := await self._database.write(self._backend.shrink)) > 0:
            freed += more
            await pause()
        return freed

    async def rebuild(self) -> dict[str, int]:
        """Drop the projections and refill them from the log; returns the rows of each table."""
        return await self._database.write(lambda connection: rebuild(self._backend, connection), barrier=True)

    # For SessionLog

    def submit(self, session_id: str, term: int, draft: Draft) -> "asyncio.Future[Event]":
        """See `SessionLog.submit`."""
        return self._recorder.submit(session_id, term, draft)

    async def blob_chain(self, hash: str) -> dict[str, bytes]:
        """See `SessionLog.blob`."""
        return await _unpacked(
            await self._database.read(lambda connection: blobs.read_chain(connection, hash))
        )

    async def let_go(self, session_id: str, term: int) -> None:
        """See `SessionLog.release`."""
        if self._held.get(session_id) == term:
            del self._held[session_id]
        self._abandoned[session_id] = term
        await self._database.write(lambda connection: leases.release(connection, session_id, term))
        if self._abandoned.get(session_id) == term:
            del self._abandoned[session_id]

    async def _delete(self, session_id: str, unused_since: int | None) -> list[str] | None:
        abandoned = self._abandoned.get(session_id)
        forks = await self._database.write(
            lambda connection: delete_session(
                self._backend, connection, session_id, self._me, abandoned, unused_since
            ),
            barrier=True,
        )
        if forks is not None:
            self._abandoned.pop(session_id, None)
        return forks

    async def _take(self, session_id: str) -> SessionLog:
        abandoned = self._abandoned.get(session_id)
        term = await self._database.write(
            lambda connection: leases.acquire(self._backend, connection, session_id, self._me, abandoned),
            barrier=True,
        )
        if self._abandoned.get(session_id) == abandoned:
            self._abandoned.pop(session_id, None)
        self._held[session_id] = term
        if self._renewing is None:
            self._renewing = asyncio.create_task(self._renew(), name="leases")
        return SessionLog(self, session_id, term)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(leases.RENEW_S)
            try:
                for session_id, term in list(self._abandoned.items()):
                    await self.let_go(session_id, term)
                if not self._held:
                    continue
                await self._database.write(
                    lambda connection: leases.renew(self._backend, connection, self._me)
                )
            except StoreError as error:
                log.warning("leases could not be renewed: %s", error)


async def _unpacked(found: Mapping[str, blobs.Blob]) -> dict[str, bytes]:
    """Contents by hash; large ones are decompressed in a thread."""

    def unpack() -> dict[str, bytes]:
        return {hash: blobs.unpack(blob) for hash, blob in found.items()}

    if sum(blob.size for blob in found.values()) > INLINE_BYTES:
        return await asyncio.to_thread(unpack)
    return unpack()


def _from(nodes: dict[str, bytes]) -> Fetch:
    async def fetch(hash: str) -> bytes:
        return nodes[hash]

    return fetch
