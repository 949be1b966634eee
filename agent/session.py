"""One live session: its log and the fold of it, its hands (workspace) and its mind (model)."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from agent.approval import Ask, Grants, deny_headless
from agent.events import (
    ConfigChanged,
    Draft,
    Event,
    EventType,
    Live,
    Mode,
    Prompt,
    QuestionAsked,
    Queued,
    Record,
    Steered,
    draft,
)
from agent.log import Log, LogError
from agent.models.client import ModelClient
from agent.prompt_chain import IdNode, Node
from agent.redaction import Redaction
from agent.state import fold
from tools.ask import Answer, AskUser, Question
from tools.mcp import McpServers
from tools.redaction import Redactor
from tools.registry import OUTPUT_LIMITS, Profile, offered, schemas
from tools.tool import Tool
from tools.workspace import Workspace

Listener = Callable[[Event | Live], None]
"""Told of every committed event and every live chunk, in order. Synchronous; must not raise."""


class Session:
    """The single writer of one session's log.

    `max_steps` bounds the steps of a turn, `max_output` the completion tokens of one (None: the engine's
    own limit). A prompt above `summarize_at` of the window is summarised, at most `max_summaries` times in a
    turn.
    """

    def __init__(
        self,
        log: Log,
        events: Iterable[Event],
        workspace: Workspace,
        model: ModelClient,
        ask: Ask = deny_headless,
        *,
        max_steps: int = 200,
        max_output: int | None = None,
        summarize_at: float = 0.8,
        max_summaries: int = 20,
        redactor: Redactor | None = None,
        mcp: McpServers | None = None,
        question: AskUser | None = None,
    ) -> None:
        self.log, self.workspace, self.model = log, workspace, model
        self.redaction = Redaction(redactor or Redactor(), workspace)
        self.ask = self.redaction.asking(ask)
        self.max_steps, self.max_output = max_steps, max_output
        self.summarize_at, self.max_summaries = summarize_at, max_summaries
        self.state = fold(events)
        self.workspace.seen = self.state.seen
        self.workspace.output_limit = OUTPUT_LIMITS[self.state.profile]
        self.task: asyncio.Task[None] | None = None
        self.interrupted = False
        self.recovery = asyncio.Lock()
        """Held while files are brought back, or what a crash left open is being closed: it is closed once."""
        self.node: Node | None = None
        """The prompt of the last stored generation; the next prompt goes on from it."""
        self.ids: IdNode | None = None
        """The same for its token ids, where the engine gave them."""
        self.mcp = mcp
        self.extra: Mapping[str, Tool] = {}
        """Tools of this session alone (its MCP servers'), by the name the model calls them."""
        self.grants = Grants()
        self._question = question
        if question is not None:
            workspace.ask = self._ask_user
        self._listeners: list[Listener] = []
        self.failure: LogError | None = None
        self._pending: set[asyncio.Future[Event]] = set()

    @property
    def id(self) -> str:
        return self.log.session_id

    @property
    def running(self) -> bool:
        """Whether a turn of this process is under way."""
        return self.task is not None and not self.task.done()

    @property
    def rules(self) -> set[str]:
        """The rules by which calls run unasked."""
        return self.state.rules if self.grants.rules is None else self.grants.rules

    @property
    def tools(self) -> Mapping[str, Tool]:
        """What the model may call, by name, in the order it is told."""
        return {**offered(self.state.profile), **self.extra}

    async def _ask_user(self, question: Question) -> Answer:
        """Log a question and put it to whoever is there."""
        assert self._question is not None
        asked = QuestionAsked(text=question.text, options=list(question.options))
        event = await self.record("question", asked)
        shown = Question(event.data["text"], tuple(event.data.get("options", ())))
        return await self._question(shown)

    def schemas(self) -> list[dict[str, Any]]:
        """Function definitions of `tools` for a prompt."""
        return schemas(self.state.profile, self.extra)

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Be told of everything from now on; returns what stops it."""
        self._listeners.append(listener)

        def stop() -> None:
            with suppress(ValueError):
                self._listeners.remove(listener)

        return stop

    def tell(self, message: Event | Live) -> None:
        """Give one message to every listener."""
        for listener in tuple(self._listeners):
            listener(message)

    def submit(self, item: Draft, *, clean: bool = False) -> "asyncio.Future[Event]":
        """Hand an event to the log without waiting; it is applied and told when it is durable. `clean`: it
        went through `redaction` already, beside the event loop.

        Raises:
            LogError: the log does not take it, or lost an earlier one. Nothing is taken after it: a log has
                no holes.
        """
        return self._submit(item if clean else self.redaction.draft(item))

    def _submit(self, item: Draft) -> "asyncio.Future[Event]":
        if self.failure is not None:
            raise self.failure
        try:
            future = self.log.submit(item)
        except LogError as error:
            self.failure = error
            raise
        if future.done():  # a log in memory: applied at once, so that the order stays that of the calls
            self._stored(future)
        else:
            self._pending.add(future)
            future.add_done_callback(self._stored)
        return future

    async def record(
        self,
        type: EventType,
        record: Record,
        *,
        turn: int | None = None,
        step: int | None = None,
        blobs: dict[str, bytes] | None = None,
    ) -> Event:
        """Store an event and wait until it is durable.

        Raises:
            LogError: it could not be stored; the session must be opened again from its log.
        """
        turn = self.state.turn if turn is None else turn
        step = self.state.step if step is None else step
        item = draft(type, record, turn=turn, step=step, blobs=blobs)
        quick = self.redaction.quick(item)
        event = await asyncio.shield(self.submit(item) if quick else await self._late(item))
        if self.failure is not None:
            raise self.failure
        return event

    async def settle(self) -> None:
        """Wait until everything submitted so far is durable."""
        if self._pending:
            await asyncio.wait(tuple(self._pending))
        if self.failure is not None:
            raise self.failure

    async def queue(self, prompt: Prompt) -> Event:
        """Keep a prompt for the next turn."""
        fields = prompt.model_dump(exclude={"queued_seq"})
        return await self.record("queued", Queued.model_validate(fields))

    async def steer(self, prompt: Prompt) -> Event:
        """Add a message to the running turn; the model sees it at its next step."""
        fields = prompt.model_dump(exclude={"queued_seq", "editor"})
        return await self.record("steered", Steered.model_validate(fields))

    async def configure(
        self,
        *,
        mode: Mode | None = None,
        model: ModelClient | None = None,
        profile: Profile | None = None,
        title: str | None = None,
    ) -> Event:
        """Change how the session goes on; a change of mode, model or profile begins a new prompt prefix."""
        name = model.name if model else None
        event = await self.record(
            "config.changed", ConfigChanged(mode=mode, model=name, profile=profile, title=title)
        )
        if model is not None:
            self.model = model
        return event

    def cancel(self) -> bool:
        """Stop the running turn at its next await. False when none is running."""
        if self.task is None or self.task.done():
            return False
        return self.task.cancel()

    def interrupt(self) -> bool:
        """As `cancel`, but the log says that the server stopped, not that a person did it."""
        self.interrupted = True
        return self.cancel()

    async def close(self) -> None:
        """Cancel a running turn, wait for its end to be stored, end the workspace's processes."""
        self.cancel()
        try:
            if self.task is not None:
                await asyncio.wait([self.task])  # what became of it is for whoever ran the turn
        finally:
            if self.mcp is not None:
                await self.mcp.close()
            await self.workspace.close()

    async def _late(self, item: Draft) -> "asyncio.Future[Event]":
        """Submit what takes a while to redact; also where whoever waits is cancelled meanwhile."""
        redacting = asyncio.ensure_future(self.redaction.prepared(item))
        cancelled = False
        while not redacting.done():
            try:
                await asyncio.wait({redacting})
            except asyncio.CancelledError:
                cancelled = True
        stored = self._submit(redacting.result())
        if cancelled:
            raise asyncio.CancelledError
        return stored

    def _stored(self, future: "asyncio.Future[Event]") -> None:
        self._pending.discard(future)
        if future.cancelled():
            self.failure = self.failure or LogError("the log was closed while an event was being stored")
            return
        error = future.exception()
        if error is not None:
            self.failure = self.failure or (
                error if isinstance(error, LogError) else LogError(f"the log failed: {error}")
            )
            return
        event = future.result()
        self.state.apply(event)
        self.workspace.output_limit = OUTPUT_LIMITS[self.state.profile]
        self.tell(event)
