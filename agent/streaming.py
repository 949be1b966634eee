"""Streamed characters: shown at once, stored in pieces of at most 50 ms or 4 KiB."""

import asyncio
from contextlib import suppress
from typing import Literal

from agent.events import Draft, Live, Text, ToolOutput, draft
from agent.log import LogError
from agent.session import Session

FLUSH_S = 0.04
"""Under the promised 50 ms, and out of step with models that send a piece every 50 ms."""
FLUSH_CHARACTERS = 4096

Kind = Literal["text", "thought", "tool.output"]


class Stream:
    """One growing text of a session: a message, a thought or the output of a call.

    `push` is synchronous: characters go to the listeners at once and to the log when 50 ms have passed
    since the first unstored one, or 4 KiB have gathered. `limit` bounds what is stored (characters).
    """

    def __init__(
        self, session: Session, kind: Kind, message_id: str, turn: int, step: int, limit: int | None = None
    ) -> None:
        self.session, self.message_id, self.limit = session, message_id, limit
        self.kind: Kind = kind
        self.turn, self.step = turn, step
        self.offset = 0
        self._parts: list[str] = []
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None
        self._redacted = session.redaction.stream(kind)

    def push(self, text: str) -> None:
        """Take more characters. Lone surrogates are replaced: the log holds Unicode only."""
        if text:
            self._take(self._redacted.feed(text.encode("utf-8", "replace").decode("utf-8")))

    def close(self) -> None:
        """No more comes: let go of what may have been the beginning of a secret, and store all."""
        self._take(self._redacted.finish())
        self.flush()

    def _take(self, text: str) -> None:
        if not text:
            return
        if self.limit is not None:
            text = text[: max(0, self.limit - self.offset - self._size)]
            if not text:
                return
        live = Live(
            session_id=self.session.id,
            type=self.kind,
            message_id=self.message_id,
            offset=self.offset + self._size,
            text=text,
        )
        self._parts.append(text)
        self._size += len(text)
        self.session.tell(live)
        if self._size >= FLUSH_CHARACTERS:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_S, self.flush)

    def flush(self) -> None:
        """Hand what has gathered to the log."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._parts and self.session.failure is None:
            text = "".join(self._parts)
            offset, self.offset = self.offset, self.offset + self._size
            self._parts, self._size = [], 0
            with suppress(LogError):  # kept as the session's failure, which its next record raises
                self.session.submit(self._draft(offset, text))

    def _draft(self, offset: int, text: str) -> Draft:
        if self.kind == "tool.output":
            record = ToolOutput(call_id=self.message_id, offset=offset, text=text)
            return draft("tool.output", record, turn=self.turn, step=self.step)
        record = Text(messageId=self.message_id, offset=offset, text=text)
        return Draft(
            type=self.kind, data=record.model_dump(exclude_none=True), turn=self.turn, step=self.step
        )
