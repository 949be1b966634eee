"""One live session: its queue of prompts, its turns, and everyone who watches."""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from agent.events import Event, Live, Prompt
from agent.log import LeaseLost, LogError
from agent.loop import run_turn
from agent.session import Session
from server.acp.connection import Connection
from server.acp.editor import Editors
from server.acp.frames import Presenter, Shown, live_frame
from server.acp.questions import Questions
from server.acp.subscriber import Subscriber
from server.growing import Growing
from server.secrets import KeyFileError
from server.store import StoreError
from server.ticket import As, Ticket
from tools.redaction import Redactor
from tools.snapshots import SnapshotError

if TYPE_CHECKING:
    from server.opener import Opener
    from server.store import SessionRow, Store
    from tools.mcp import McpSpec

log = logging.getLogger(__name__)

LEASE_LOST = 4409
CLOSED = "the session was closed"
OUTBOX = 10_000
"""Messages that wait for an edit's texts to be read, from which on live characters are left out: their event
brings them. Events never are; the recorder bounds how many there can be."""


class SessionFailed(Exception):
    """The session cannot go on in this process. The message says why and what to do."""


class LiveSession:
    """Owns the order of one session in this process.

    It exists as soon as anyone looks at the session; its `session` is opened (lease, fold, recovery)
    when something has to be written. `delivered` is the last `seq` that live subscribers were given.
    """

    def __init__(self, row: "SessionRow", store: "Store", opener: "Opener") -> None:
        self.id, self.user_id, self.root, self.term = row.id, row.user_id, row.workspace, row.term
        self.store, self.opener = store, opener
        self.session: Session | None = None
        self.subscribers: dict[Connection, Subscriber] = {}
        self.questions = Questions(self)
        self.editors = Editors()
        self.mcp: tuple[McpSpec, ...] = ()
        """The MCP servers its client named; they are connected when the session is opened."""
        self.delivered = row.last_seq
        self.presenter = self.make_presenter()
        self.presenter.mode, self.presenter.model, self.presenter.title = row.mode, row.model, row.title
        self.touched = asyncio.get_running_loop().time()
        self.ended = False
        """Closed for good: whoever still holds this object must look for the session again."""
        self._redactor: Redactor | None = None
        """Of a session that is only looked at."""
        self._unstored: dict[str, Growing] = {}
        self._tickets: dict[str, Ticket] = {}
        self._inbox: deque[Ticket] = deque()
        self._current: Ticket | None = None
        self._started = False
        self._outbox: deque[Event | Live] = deque()
        self._showing: set[asyncio.Task[None]] = set()
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._turning: asyncio.Task[None] | None = None
        self._admitting: asyncio.Task[None] | None = None

    # ---- what is known

    @property
    def busy(self) -> bool:
        """Whether a turn runs or a prompt waits."""
        return self._current is not None or bool(self._inbox) or self._turning is not None

    @property
    def unused(self) -> bool:
        """Whether nothing would be lost with this object: nobody watches, nothing runs, opens or is held."""
        return not (self.subscribers or self._tasks or self._lock.locked() or self.session is not None)

    @property
    def running(self) -> bool:
        return self._current is not None

    def path(self, relative: str) -> str:
        """A workspace path as clients get it: absolute."""
        return str(PurePosixPath(self.root) / relative)

    def make_presenter(self, *, from_start: bool = False) -> Presenter:
        return Presenter(
            self.id,
            self.root,
            self.content,
            self.opener.window,
            self.opener.model_names,
            from_start=from_start,
        )

    async def content(self, hash: str) -> bytes:
        """One side of an edit as clients may see it: without secrets.

        Raises:
            StoreError: it is not kept any more.
        """
        try:
            true = await self.opener.snapshots.read(hash)
        except SnapshotError:
            return await self.store.blob(hash)  # of an edit that was logged with its contents
        redactor = self.session.redaction.redactor if self.session is not None else self._redactor
        if redactor is None:
            first = await self.store.events(self.id, limit=1)
            try:
                redactor = self._redactor = await asyncio.to_thread(self.opener.secrets.redactor, first)
            except KeyFileError as error:
                raise StoreError(str(error)) from error
        return await asyncio.to_thread(redactor.redact_bytes, true)

    def unstored(self) -> Iterable[Live]:
        """The characters of growing messages that no event holds yet."""
        return [growing.live() for growing in self._unstored.values()]

    def frame(self, live: Live) -> str:
        return live_frame(live, self.term)

    def wrote(self, connection: Connection, event: Event) -> bool:
        """Whether this connection sent the message of this event."""
        ticket = self._tickets.get(event.data.get("message_id", ""))
        return ticket is not None and ticket.origin is connection

    # ---- who watches

    def attach(self, connection: Connection, after: int, *, extended: bool) -> Subscriber:
        """Begin (again) to send a connection what comes after `after`. In one tick."""
        self.detach(connection)
        self.touched = asyncio.get_running_loop().time()
        subscriber = self.subscribers[connection] = Subscriber(self, connection, after, extended=extended)
        subscriber.start()
        return subscriber

    def detach(self, connection: Connection) -> None:
        if (subscriber := self.subscribers.pop(connection, None)) is not None:
            subscriber.end()
            self.questions.leave(connection)
            self.editors.leave(connection)

    async def refresh(self, path: str) -> None:
        """Ask the editors that watch for their text of a file."""
        await self.editors.refresh(self.id, self.root, path, tuple(self.subscribers))

    async def write_through(self, path: str, text: str) -> None:
        """Write a file through the editor that holds unsaved text of it. Raises `EnvironmentFault`."""
        await self.editors.write_through(self.id, self.root, path, text)

    # ---- what is asked of it

    def prompt(self, prompt: Prompt, origin: Connection | None = None) -> Ticket:
        """Take a prompt. Synchronous, so that a cancel right behind it finds it.

        A message id that is on its way already returns its ticket.
        """
        if (known := self._tickets.get(prompt.message_id)) is not None:
            return known
        ticket = Ticket(prompt, origin)
        if self.ended:
            ticket.fail(SessionFailed(CLOSED))
            return ticket
        self._tickets[prompt.message_id] = ticket
        self.touched = asyncio.get_running_loop().time()
        self._inbox.append(ticket)
        if self._admitting is None:
            self._admitting = self._spawn(self._admit())
        return ticket

    async def steer(self, prompt: Prompt, expected_turn: int | None, origin: Connection) -> tuple[int, As]:
        """Add a message to the running turn; without one (or another than expected), a prompt of its own."""
        session = await self.open()
        if (known := session.state.accepted.get(prompt.message_id)) is not None:
            return known[0], _as(known[1])
        turn = session.state.turn
        if self._started and session.running and expected_turn in (None, turn):
            if (ticket := self._tickets.get(prompt.message_id)) is None:
                ticket = self._tickets[prompt.message_id] = Ticket(prompt, origin)
                try:
                    event = await session.steer(prompt)
                    ticket.accept(event.seq, "steer")
                except LogError as error:
                    ticket.fail(SessionFailed(str(error)))
                finally:
                    self._tickets.pop(prompt.message_id, None)
                    ticket.fail(SessionFailed("whoever sent this message is gone: send it again"))
            return await asyncio.shield(ticket.accepted)
        return await asyncio.shield(self.prompt(prompt, origin).accepted)

    def cancel(self, ticket: Ticket | None = None) -> bool:
        """Stop the running turn (or only if it is that of `ticket`). False if there is none.

        Prompts that wait behind it are kept and run next.
        """
        target = self._current or (self._inbox[0] if self._inbox else None)
        if target is None or (ticket is not None and ticket is not target):
            return False
        if target is self._current and self._started and self.session is not None:
            return self.session.cancel()
        target.cancelled = True
        return True

    async def open(self) -> Session:
        """The session, opened if need be.

        Raises:
            SessionFailed: another process owns it, its folder is gone, its log cannot be read.
        """
        self.touched = asyncio.get_running_loop().time()
        if self.session is not None and self.session.failure is None:
            return self.session
        async with self._lock:
            if self.ended:
                raise SessionFailed(CLOSED)
            if self.session is not None and self.session.failure is None:
                return self.session
            await self._let_go()
            session = await self.opener.open(self)
            self._opened(session)
            await self.opener.recover(session)
            await self.opener.suit(session)
        if session.state.queued and self._turning is None and not self.ended:
            self._turning = self._spawn(self._turns(session, None, None))
        return session

    def revive(self) -> None:
        """Open the session beside: closes what a crash left open, and runs what had queued."""

        async def work() -> None:
            try:
                await self.open()
            except (SessionFailed, LogError) as error:
                log.warning("session %s: %s", self.id, error)
            except Exception:
                log.exception("session %s could not be opened", self.id)

        self._spawn(work())

    async def outcome(self, seq: int) -> dict[str, Any] | None:
        """The data of `turn.ended` of the prompt accepted as event `seq`; None if it has not ended."""
        after, turn = seq - 1, None
        while page := await self.store.events(self.id, after=after, limit=500):
            for event in page:
                if event.type in ("prompt", "steered") and seq in (event.seq, event.data.get("queued_seq")):
                    turn = event.turn
                elif event.type == "turn.ended" and turn == event.turn:
                    return event.data
            after = page[-1].seq
        return None

    async def unload(self) -> None:
        """Let go of the session: shell, lease, memory. Watchers stay; the next prompt opens it again."""
        async with self._lock:
            if not self.busy:
                await self._let_go()

    async def close(self, *, stopping: bool = False) -> None:
        """End the running turn and everything that waits, then let go.

        `stopping`: because the server stops; the log then calls the turn interrupted, not cancelled.
        """
        self.ended = True
        if stopping and self.session is not None:
            self.session.interrupt()
        for ticket in (*self._inbox, *self._tickets.values()):
            ticket.fail(SessionFailed(CLOSED))
        self._inbox.clear()
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=10)
        async with self._lock:
            await self._let_go()

    # ---- turns

    async def _admit(self) -> None:
        try:
            while self._inbox:
                ticket = self._inbox[0]
                try:
                    await self._take(ticket)
                except (SessionFailed, LogError) as error:
                    self._reject(ticket, str(error))
                except Exception as error:
                    log.exception("session %s did not take a prompt", self.id)
                    self._reject(
                        ticket, f"a defect in Etude ({type(error).__name__}); the log has the details"
                    )
                finally:
                    if self._inbox and self._inbox[0] is ticket:
                        self._inbox.popleft()
        finally:
            self._admitting = None

    def _reject(self, ticket: Ticket, why: str) -> None:
        self._tickets.pop(ticket.prompt.message_id, None)
        ticket.fail(SessionFailed(why))

    async def _take(self, ticket: Ticket) -> None:
        """Make one prompt durable: as the next turn, or in the queue behind the running one."""
        session, prompt = await self.open(), ticket.prompt
        known = session.state.accepted.get(prompt.message_id)
        if known is not None:
            seq, kind = known
            ticket.accept(seq, _as(kind))
            self._spawn(self._answer_known(ticket, seq))
        elif self._turning is not None or session.state.queued:
            event = await session.queue(prompt)
            ticket.accept(event.seq, "queue")
            if self._turning is None:
                self._turning = self._spawn(self._turns(session, None, None))
        else:
            self._current = ticket
            self._turning = self._spawn(self._turns(session, ticket, prompt))
            await asyncio.wait({ticket.accepted})

    async def _answer_known(self, ticket: Ticket, seq: int) -> None:
        """Answer a prompt that the log accepted before, under another ticket or in another process."""
        self._tickets.pop(ticket.prompt.message_id, None)
        try:
            while (ended := await self.outcome(seq)) is None and self._turning is not None:
                await asyncio.wait({self._turning})
        except Exception as error:  # noqa: BLE001 - whatever the store raises, the answer must come
            ticket.fail(SessionFailed(str(error)))
            return
        ticket.finish(ended or {"reason": "interrupted"})

    async def _turns(self, session: Session, ticket: Ticket | None, prompt: Prompt | None) -> None:
        """Run a prompt, then what has queued behind it, until nothing waits."""
        try:
            while True:
                if prompt is None:
                    if not session.state.queued:
                        return
                    waiting = session.state.queued[0]
                    prompt = Prompt(
                        message_id=waiting.message_id,
                        text=waiting.text,
                        blocks=waiting.blocks,
                        editor=waiting.editor,
                        queued_seq=waiting.seq,
                    )
                    ticket = self._tickets.get(prompt.message_id) or Ticket(prompt, None)
                assert ticket is not None
                self._current, self._started = ticket, False
                ended = await self._turn(session, prompt)
                self._tickets.pop(prompt.message_id, None)
                await asyncio.gather(*self._showing)  # the answer comes behind all that it is about
                ticket.finish(ended)
                prompt = None
        except LogError as error:
            log.error("session %s stopped: %s", self.id, error)
            self._broke(error)
        except Exception as error:
            log.exception("the turn of session %s failed", self.id)
            self._broke(LogError(f"a defect in Etude ended the turn ({type(error).__name__})"))
        finally:
            self._current, self._turning, self._started = None, None, False
            self._unstored.clear()
            self.touched = asyncio.get_running_loop().time()

    async def _turn(self, session: Session, prompt: Prompt) -> dict[str, Any]:
        ended: dict[str, Any] = {"reason": "interrupted"}
        async for message in run_turn(session, prompt):
            if isinstance(message, Event) and message.type == "turn.ended":
                ended = message.data
        return ended

    def _broke(self, error: LogError) -> None:
        lost = isinstance(error, LeaseLost)
        text = "another server took this session over: attach again" if lost else str(error)
        for ticket in tuple(self._tickets.values()):
            ticket.fail(SessionFailed(text))
        self._tickets.clear()
        if lost:
            for connection in tuple(self.subscribers):
                connection.abort(LEASE_LOST, "another server took the session over")

    # ---- opening and letting go

    def _opened(self, session: Session) -> None:
        state = session.state
        self.session, self.root, self.term = session, state.workspace, session.log.term
        self.presenter = self.make_presenter(from_start=True)
        self.presenter.mode, self.presenter.model = state.mode, state.model
        self.presenter.title, self.presenter.cost = state.title, state.cost
        self.delivered = max(self.delivered, state.last_seq)
        for subscriber in self.subscribers.values():
            if not subscriber.catching and subscriber.sent < self.delivered:
                subscriber.start()
        session.listen(self._heard)

    async def _let_go(self) -> None:
        if self.session is not None:
            session, self.session = self.session, None
            await self.opener.let_go(session)

    # ---- what happens in it

    def _heard(self, message: Event | Live) -> None:
        """A committed event or live characters, in order."""
        if isinstance(message, Event):
            self._progress(message)
            self.opener.metrics.event(message)
        if self._outbox:
            if isinstance(message, Event) or len(self._outbox) < OUTBOX:
                self._outbox.append(message)
        elif isinstance(message, Live):
            self._deliver_live(message)
        elif self.presenter.needs_blobs(message):
            self._outbox.append(message)
            self._showing = {self._spawn(self._empty_outbox())}
        else:
            self._deliver(message, self._show(message))

    def _progress(self, event: Event) -> None:
        if event.type == "prompt":
            if (ticket := self._tickets.get(event.data["message_id"])) is not None:
                ticket.accept(event.seq, "turn")
        elif event.type == "turn.started":
            self._started = True
            if self._current is not None and self._current.cancelled and self.session is not None:
                self.session.cancel()
        elif event.type == "turn.ended":
            self._started = False

    def _show(self, event: Event) -> list[Shown]:
        # Stored text is shown by each subscriber for itself: most have its characters already.
        return [] if event.type in ("text", "thought") else self.presenter.show_now(event, self.term)

    async def _read_and_show(self, event: Event) -> list[Shown]:
        try:
            return await self.presenter.show(event, self.term)
        except Exception:
            # As one that has no form: whatever is wrong with it, what comes behind it must go out.
            log.exception("event %d of session %s could not be shown", event.seq, self.id)
            return self.presenter.show_now(event, self.term)

    async def _empty_outbox(self) -> None:
        while self._outbox:
            message = self._outbox[0]
            if isinstance(message, Live):
                self._deliver_live(message)
            elif self.presenter.needs_blobs(message):
                self._deliver(message, await self._read_and_show(message))
            else:
                self._deliver(message, self._show(message))
            self._outbox.popleft()

    def _deliver(self, event: Event, shown: list[Shown]) -> None:
        self.delivered = event.seq
        if event.type in ("text", "thought", "tool.output"):
            self._trim(event)
        elif event.type == "turn.ended":
            self._unstored.clear()
        for subscriber in tuple(self.subscribers.values()):
            subscriber.deliver(event, shown)

    def _deliver_live(self, live: Live) -> None:
        self.opener.metrics.deltas.inc()
        growing = self._unstored.get(live.message_id)
        if growing is None:
            growing = self._unstored[live.message_id] = Growing(live)
        growing.add(live)
        if self.subscribers:
            frame = self.frame(live)
            for subscriber in tuple(self.subscribers.values()):
                subscriber.deliver_live(live, frame)

    def _trim(self, event: Event) -> None:
        id = event.data.get("messageId") or event.data.get("call_id", "")
        growing = self._unstored.get(id)
        if growing is not None and not growing.trim(event.data["offset"] + len(event.data["text"])):
            del self._unstored[id]

    def _spawn(self, work: Any) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _as(word: str) -> As:
    return "queue" if word == "queue" else "steer" if word == "steer" else "turn"
