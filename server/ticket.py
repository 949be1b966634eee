"""A prompt on its way through a live session."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Literal

from agent.events import Prompt
from server.acp.connection import Connection

As = Literal["turn", "queue", "steer"]


@dataclass(eq=False, slots=True)
class Ticket:
    """A prompt on its way: accepted when durable, done when its own turn has ended.

    `done` resolves to the data of `turn.ended`; both futures raise `SessionFailed`.
    """

    prompt: Prompt
    origin: Connection | None
    accepted: "asyncio.Future[tuple[int, As]]" = field(init=False)
    done: "asyncio.Future[dict[str, Any]]" = field(init=False)
    cancelled: bool = False

    def __post_init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.accepted, self.done = loop.create_future(), loop.create_future()

    def accept(self, seq: int, kind: As) -> None:
        if not self.accepted.done():
            self.accepted.set_result((seq, kind))

    def finish(self, ended: dict[str, Any]) -> None:
        if not self.done.done():
            self.done.set_result(ended)

    def fail(self, error: Exception) -> None:
        for future in (self.accepted, self.done):
            if not future.done():
                future.set_exception(error)
                future.exception()  # nobody has to wait for it
