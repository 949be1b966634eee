"""The agent loop: one turn, from a user's message to the agent's stop.

A turn is a row of steps; a step is one generation and the calls it made. Everything that happens is an
event of the log before anyone sees it as done, and the next request is made from the fold of the log.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine
from contextlib import suppress
from dataclasses import dataclass

from agent import prompts
from agent.calls import close_calls, may_change, run_calls
from agent.checkpoints import Checkpoints
from agent.connecting import connect
from agent.events import EndReason, ErrorData, Event, Generation, Live, Prompt, TurnEnded, TurnStarted, Usage
from agent.instructions import load
from agent.log import LogError
from agent.models.client import ContextOverflow, ModelError
from agent.session import Session
from agent.step import generate
from agent.summary.summaries import Summaries
from agent.undo import finish_changes
from agent.workspace_facts import Facts
from tools.errors import EnvironmentFault
from tools.transaction import recover as mend

log = logging.getLogger(__name__)

REPEATS_REFUSED, REPEATS_ENDED = 3, 6
"""The same calls in consecutive steps: from the third on they are refused, at the sixth the turn ends."""
MALFORMED_ENDED = 5
"""Consecutive steps without one valid call after which the turn ends."""
EMPTY_ENDED = 3
"""Consecutive empty answers after which the turn ends."""


class TurnRunning(RuntimeError):
    """A session runs one turn at a time: queue the prompt or steer the running turn."""


@dataclass(frozen=True, slots=True)
class End:
    """Why a turn ended, in the log's word and, where it is not the ordinary end, in a sentence."""

    reason: EndReason
    message: str | None = None


async def run_turn(session: Session, prompt: Prompt) -> AsyncGenerator[Event | Live, None]:
    """Run one turn; yields every stored event and every live chunk, in order, up to `turn.ended`.

    Leaving the iterator early cancels the turn.

    Raises:
        TurnRunning: another turn of this session is under way.
        LogError: the log could not store an event; nothing after it happened.
    """
    if session.running:
        raise TurnRunning(f"session {session.id} is running a turn: queue the prompt or steer it")
    # Bounded by what the turn says: listeners may neither wait nor raise, and nothing here may be left out.
    out: asyncio.Queue[Event | Live | None] = asyncio.Queue()
    task = session.task = asyncio.create_task(_turn(session, prompt), name=f"turn {session.id}")
    stop = session.listen(out.put_nowait)
    task.add_done_callback(lambda _: out.put_nowait(None))
    try:
        while (message := await out.get()) is not None:
            yield message
    finally:
        stop()
        if not task.done():
            task.cancel()
        await task


async def recover(session: Session) -> None:
    """Close what a crash left open: calls without results, approvals without answers, the turn itself."""
    state = session.state
    if session.workspace.snapshots is not None:
        await finish_changes(session)
    async with session.recovery:
        said = "Interrupted: the server stopped before this call ended."
        if state.pending_calls:
            mended = await asyncio.to_thread(mend, session.workspace.root)
            said += f" What it had half done was taken back: {', '.join(mended)}." if mended else ""
        await close_calls(session, "interrupted", said)
        if state.running:
            ended = TurnEnded(
                reason="interrupted", message="the server stopped during this turn", steps=state.steps
            )
            await session.record("turn.ended", ended)


async def _turn(session: Session, prompt: Prompt) -> None:
    await recover(session)
    turn = session.state.turn + 1
    usage, cost = session.state.usage, session.state.cost or 0.0
    facts, checkpoints = Facts(session, turn), Checkpoints(session, turn)
    try:
        end = await _play(session, prompt, turn, facts, checkpoints)
        await _unbroken(_end(session, end, turn, facts, checkpoints, usage, cost))
    finally:
        facts.stop()
        checkpoints.stop()


async def _play(session: Session, prompt: Prompt, turn: int, facts: Facts, checkpoints: Checkpoints) -> End:
    """The turn itself; however it ends, this says why."""
    try:
        await session.record("prompt", prompt, turn=turn, step=0)
        limit = min(session.max_steps, prompt.max_steps or session.max_steps)
        await _begin(session, turn, limit)
        await checkpoints.noted()
        return await _steps(session, turn, facts, checkpoints, limit)
    except asyncio.CancelledError:
        stopped = End("interrupted", "the server stopped during this turn")
        return stopped if session.interrupted else End("cancelled")
    except ContextOverflow as error:
        return End("overlong", f"the context is full, start a new session: {error.message}")
    except ModelError as error:
        return End("model_error", error.message)
    except EnvironmentFault as error:
        return End("env_error", error.message)
    except LogError:
        raise
    except Exception as error:
        log.exception("turn %d of session %s failed", turn, session.id)
        return End("env_error", f"a defect in Etude ended the turn ({type(error).__name__}); it was logged")


async def _begin(session: Session, turn: int, limit: int) -> None:
    """Log what the turn starts from; the prompt's prefix is made anew only where it has to be."""
    state, model = session.state, session.model
    prefix = (model.name, state.mode, state.profile)
    await connect(session, turn)
    tools = session.schemas()
    fresh = state.system is None or state.prefix != prefix or state.tools != tools
    instructions = await asyncio.to_thread(load, session.workspace) if fresh else None
    started = TurnStarted(
        model=model.name,
        policy=model.policy,
        mode=state.mode,
        profile=state.profile,
        max_steps=limit,
        system=prompts.system(state.profile, state.mode, state.workspace, instructions) if fresh else None,
        tools=tools if fresh else None,
    )
    await session.record("turn.started", started, turn=turn, step=0)


async def _steps(session: Session, turn: int, facts: Facts, checkpoints: Checkpoints, limit: int) -> End:
    watch = Watch()
    summaries = Summaries(session, turn)
    for step in range(1, limit + 1):
        generation = await _step(session, turn, step, summaries)
        if isinstance(generation, End):
            return generation
        if generation.calls:
            changing = may_change(session, generation)
            if changing:
                await facts.record()
                await checkpoints.ahead(generation, step)
            refusal = watch.repetition(generation)
            outcomes = await run_calls(session, generation, turn, step, refuse=refusal)
            summaries.stepped(generation, outcomes)
            if changing:
                await checkpoints.after(generation, step)
            if end := await watch.after_calls(session, outcomes):
                return end
        elif end := watch.after_answer(session, generation):
            return end
    return End("max_steps", f"the turn reached its limit of {limit} steps")


async def _step(session: Session, turn: int, step: int, summaries: Summaries) -> Generation | End:
    """The generation of a step, from a conversation that fits: summarised first where it does not."""
    why = await summaries.ahead(step)
    while why is None:
        try:
            return await generate(session, turn, step)
        except ContextOverflow as error:
            why = await summaries.overflowed(step, error)
    return End("overlong", why)


class Watch:
    """Notices a turn that gets nowhere: the same calls again and again, malformed calls, empty answers."""

    def __init__(self) -> None:
        self.last: list[tuple[str, str]] = []
        self.repeats = 0
        self.malformed = 0
        self.empty = 0

    def repetition(self, generation: Generation) -> str | None:
        """What to answer instead of running the same calls once more; None where they are new."""
        calls = [(call.name, call.arguments) for call in generation.calls]
        self.repeats = self.repeats + 1 if calls == self.last else 1
        self.last = calls
        if self.repeats < REPEATS_REFUSED:
            return None
        return (
            f"This call was made {self.repeats} times in a row; it was not run again. "
            "Its result would not differ. Do something else, or finish."
        )

    async def after_calls(self, session: Session, outcomes: list[str]) -> End | None:
        """The end of the turn, if these outcomes are one call too many."""
        self.empty = 0
        if self.repeats >= REPEATS_REFUSED:
            error = ErrorData(
                where="loop", error="repeated_call", message=f"the model repeated a call {self.repeats} times"
            )
            await session.record("error", error)
        if self.repeats >= REPEATS_ENDED:
            return End("malformed", f"the model repeated the same call {self.repeats} times")
        valid = any(outcome in ("ok", "failed") for outcome in outcomes)
        self.malformed = 0 if valid else self.malformed + 1
        if self.malformed >= MALFORMED_ENDED:
            return End("malformed", f"the model made no valid tool call in {self.malformed} steps")
        return None

    def after_answer(self, session: Session, generation: Generation) -> End | None:
        """The end of the turn after an answer without calls; None where the turn goes on."""
        if session.state.steered:
            return None
        if generation.finish == "length":
            return End("overlong", "the answer was cut off at the output limit; send a message to go on")
        if generation.text.strip():
            return End("end_turn")
        self.empty += 1
        if self.empty >= EMPTY_ENDED:
            return End("malformed", f"the model gave {self.empty} empty answers in a row")
        return None


async def _end(
    session: Session,
    end: End,
    turn: int,
    facts: Facts,
    checkpoints: Checkpoints,
    usage: Usage,
    cost: float,
) -> None:
    state = session.state
    await session.settle()
    stopped = end.reason in ("cancelled", "interrupted")
    if not stopped:
        await facts.record()
    await checkpoints.end(stopped=stopped)
    if end.reason == "cancelled":
        await close_calls(session, "cancelled", "Cancelled: the user stopped this turn.")
    else:
        await close_calls(session, "interrupted", f"Not finished: the turn ended ({end.reason}).")
    ended = TurnEnded(
        reason=end.reason,
        message=end.message,
        steps=state.steps,
        usage=_difference(state.usage, usage),
        cost=None if state.cost is None else state.cost - cost,
    )
    await session.record("turn.ended", ended, turn=turn)


def _difference(now: Usage, before: Usage) -> Usage:
    fields = {
        name: None if value is None else value - (getattr(before, name) or 0)
        for name in ("input", "cached", "output", "reasoning")
        for value in [getattr(now, name)]
    }
    return Usage.model_validate(fields)


async def _unbroken(closing: Coroutine[None, None, None]) -> None:
    """Finish even when cancelled again: a turn that began must end in the log."""
    task = asyncio.ensure_future(closing)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    task.result()
