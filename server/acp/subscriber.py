"""One connection's view of one session: what it was sent, what it still lacks."""

import asyncio
import logging
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.events import Event, Live
from server.acp.compaction import shows_compaction
from server.acp.connection import Connection, Frame
from server.acp.frames import Presenter, Shown, stored_frame

if TYPE_CHECKING:
    from server.live import LiveSession

log = logging.getLogger(__name__)

PAGE = 250
"""Events read at once for a client that catches up."""
WARM_UP = 200
"""Events before the first one sent that are folded, so that calls begun there are shown whole."""
LAGGING = 256
"""Frames in the queue from which on stored text replaces live text that has not been sent."""


class Track:
    """The characters of one growing message that the peer has (or will have: they are in its queue)."""

    __slots__ = ("frames", "have")

    def __init__(self, have: int) -> None:
        self.have = have
        self.frames: deque[Frame] = deque()

    def lost(self, offset: int) -> None:
        self.have = min(self.have, offset)

    def remember(self, frame: Frame) -> None:
        """Keep a queued live frame until it is sent or no longer a live one."""
        while self.frames and self.frames[0].text is None:
            self.frames.popleft()
        self.frames.append(frame)

    def settle(self, connection: Connection) -> None:
        """Its characters are stored now: what is still queued must not be given up any more.

        For a peer that lags, the queued pieces are taken back instead: one stored piece replaces them.
        """
        while self.frames:
            frame = self.frames.popleft()
            if frame.text is None:
                continue
            if connection.backlog > LAGGING:
                connection.drop(frame)
                self.lost(frame.offset)
            else:
                frame.track = None


class Subscriber:
    """Sends each event of a session exactly once, in order, to one connection.

    It begins by catching up from the store (`sent` is the last `seq` the peer has) and turns live the
    moment it has everything the session has delivered.
    """

    def __init__(self, live: "LiveSession", connection: Connection, sent: int, *, extended: bool) -> None:
        self.live, self.connection, self.sent, self.extended = live, connection, sent, extended
        self.catching = True
        self.ended = False
        self._tracks: dict[str, Track] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Catch up, then be live. At once where there is nothing to catch up with."""
        if self.sent >= self.live.delivered:
            self._turn_live()
        else:
            self.catching = True
            self._task = asyncio.get_running_loop().create_task(self._catch_up())

    async def caught_up(self) -> None:
        """Wait until the replay is in the connection's queue."""
        if self._task is not None:
            await asyncio.wait({self._task})

    def end(self) -> None:
        """Send nothing more."""
        self.ended = True
        if self._task is not None:
            self._task.cancel()

    def deliver(self, event: Event, shown: list[Shown]) -> None:
        """Send one committed event, if it is the next one the peer lacks."""
        if self.ended or self.catching or event.seq <= self.sent:
            return
        if event.seq > self.sent + 1 or (event.type == "edit" and self.connection.crowded):
            # A patch of many files comes at once: it is read back from the store as fast as the peer reads.
            self.start()
            return
        self.sent = event.seq
        if event.type in ("text", "thought"):
            self._stored_text(event)
        elif event.type == "tool.output" and self.extended:
            self._stored_output(event, shown)
        else:
            self._send(event, shown)
            if event.type == "turn.ended":
                self._tracks.clear()

    def deliver_live(self, live: Live, text: str) -> None:
        """Send characters at once, if the peer has everything before them."""
        if self.ended or self.catching or (live.type == "tool.output" and not self.extended):
            return
        track = self._tracks.get(live.message_id)
        if track is None:
            track = self._tracks[live.message_id] = Track(0)
        if track.have != live.offset:
            return
        track.have += len(live.text)
        frame = self.connection.put(text, track, live.offset)
        if frame.text is not None:
            track.remember(frame)

    def _stored_text(self, event: Event) -> None:
        message_id, offset = event.data["messageId"], event.data["offset"]
        end = offset + len(event.data["text"])
        track = self._settled(message_id, offset)
        if track.have >= end:
            if self.extended:
                self.connection.put(stored_frame(self.live.id, event.seq, message_id, end))
            return
        start = 0 if self.extended else max(0, track.have - offset)
        track.have = end
        self.connection.put(self.live.presenter.chunk(event, self.live.term, start))

    def _stored_output(self, event: Event, shown: list[Shown]) -> None:
        call_id, offset = event.data["call_id"], event.data["offset"]
        end = offset + len(event.data["text"])
        track = self._settled(call_id, offset)
        if track.have >= end:
            self.connection.put(stored_frame(self.live.id, event.seq, call_id, end))
            return
        track.have = end
        self._send(event, shown)

    def _settled(self, id: str, offset: int) -> Track:
        """What the peer has of a message whose characters from `offset` on are stored now."""
        track = self._tracks.setdefault(id, Track(offset))
        track.settle(self.connection)
        return track

    def _send(self, event: Event, shown: list[Shown]) -> None:
        own = not self.extended and self.live.wrote(self.connection, event)
        for frame in shown:
            text = frame.extended if self.extended else frame.plain
            if frame.compaction is not None and shows_compaction(self.connection):
                text = frame.compaction
            if text is not None and not (own and frame.kind == "user_message_chunk"):
                self.connection.put(text)

    async def _catch_up(self) -> None:
        try:
            presenter = await self._warm_presenter()
            while not self.ended:
                page = await self.live.store.events(self.live.id, after=self.sent, limit=PAGE)
                for event in page:
                    shown = await presenter.show(event, self.live.term)
                    await self.connection.drained()
                    if self.ended:
                        return None
                    self._send(event, shown)
                    self.sent = event.seq
                    self._follow(event)
                    if self.sent >= self.live.delivered:
                        return self._turn_live()
                if not page:
                    return self._turn_live()
        except Exception:
            log.exception("session %s could not be replayed", self.live.id)
            self.connection.abort(1011, "the session could not be read")

    async def _warm_presenter(self) -> Presenter:
        presenter = self.live.make_presenter(from_start=self.sent == 0)
        if self.sent:
            before = max(0, self.sent - WARM_UP)
            for event in await self.live.store.events(self.live.id, after=before, limit=WARM_UP):
                if event.seq <= self.sent:
                    await presenter.show(event, self.live.term)
        return presenter

    def _follow(self, event: Event) -> None:
        """Remember how far the peer has each message that may still grow."""
        if event.type in ("text", "thought"):
            end = event.data["offset"] + len(event.data["text"])
            self._tracks[event.data["messageId"]] = Track(end)
        elif event.type == "tool.output":
            end = event.data["offset"] + len(event.data["text"])
            self._tracks[event.data["call_id"]] = Track(end)
        elif event.type in ("generation", "turn.ended"):
            self._tracks.clear()

    def _turn_live(self) -> None:
        """In one tick: no event can come between the replay and what follows."""
        self.catching = False
        for live in self.live.unstored():
            track = self._tracks.setdefault(live.message_id, Track(0))
            missing = live.text[max(0, track.have - live.offset) :]
            if missing and track.have >= live.offset:
                offset = live.offset + len(live.text) - len(missing)
                piece = replace(live, offset=offset, text=missing)
                self.deliver_live(piece, self.live.frame(piece))
        self.live.questions.offer(self)
