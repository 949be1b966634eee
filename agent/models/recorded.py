"""A model whose answers are known: the generations of a logged session, in order."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Final, Literal

from agent.events import Event, Generation, Usage
from agent.models.client import Chunk, Completion, Delta, ModelError, Price, Request

LoadEvents = Callable[[str], Awaitable[Sequence[Event]]]
"""Gives all events of a session by its id."""

_PIECE: Final = 32
"""Characters of one delta."""


class RecordedModel:
    """Answers the k-th request of a session with the k-th generation of the recording.

    How many generations the session already has says where it is, so that one that is resumed, also after a
    summary, goes on where it was. What the live tools return may differ from the recording: it plays on.
    Summaries are a row of their own: one that is asked for where the recording has none is left out.
    """

    def __init__(self, session: str, source: Sequence[Event] | LoadEvents) -> None:
        self.name = f"recorded:{session}"
        self.policy: str | None = None
        self.context_window = 1_000_000
        self.profile: Literal["full", "compact"] = "full"
        self.price: Price | None = None
        self._session = session
        self._source = source
        self._generations: list[Generation] | None = None
        self._positions: dict[tuple[str, str], int] = {}

    async def sample(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """The next generation.

        Raises:
            ModelError: the recording is over, or cannot be read.
        """
        generations = [one for one in await self._read() if one.purpose == request.purpose]
        start = request.made
        if start is None:
            steps = sum(message.get("role") == "assistant" for message in request.messages)
            start = steps if request.purpose == "step" else 0
        key = (request.session_id, request.purpose)
        position = self._positions.setdefault(key, start)
        if request.purpose == "summary" and position >= len(generations):
            yield Completion(text="", thought="", calls=[], finish="stop", usage=Usage())
            return
        if position >= len(generations):
            raise ModelError(
                f"The recording of session {self._session} is over: it has {len(generations)} generations,"
                f" and number {position + 1} was asked for. Choose another model to go on."
            )
        self._positions[key] = position + 1
        recorded = generations[position]
        for kind, text in (("thought", recorded.thought), ("text", recorded.text)):
            for at in range(0, len(text), _PIECE):
                yield Delta("thought" if kind == "thought" else "text", text[at : at + _PIECE])
                await asyncio.sleep(0)
        yield Completion(
            text=recorded.text,
            thought=recorded.thought,
            calls=recorded.calls,
            finish="stop" if recorded.finish == "cancelled" else recorded.finish,
            usage=recorded.usage,
            request_id=recorded.request_id,
            grammar=recorded.grammar,
        )

    async def close(self) -> None:
        """Nothing is open."""

    async def _read(self) -> list[Generation]:
        if self._generations is None:
            events = self._source
            if not isinstance(events, Sequence):
                try:
                    events = await events(self._session)
                except LookupError as error:
                    raise ModelError(f"There is no session {self._session} to replay ({error}).") from error
            found = [event.data for event in events if event.type == "generation"]
            if not found:
                raise ModelError(f"Session {self._session} has no generations to replay.")
            self._generations = [Generation.model_validate(data) for data in found]
        return self._generations
