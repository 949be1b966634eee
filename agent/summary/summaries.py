"""When the conversation of a turn is summarised, how often, and what happens when that does not work."""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agent import prompts
from agent.context import build
from agent.events import ErrorData, Generation, Summary
from agent.events.conversation import RefusedSummary, Trigger
from agent.models.client import ContextOverflow
from agent.step import generate
from agent.summary.acceptance import Offer, refusal
from agent.summary.pruning import fitted
from agent.summary.segment import Segment, opened, pruned
from agent.summary.size import fixed_tokens, next_tokens, size_of, tokens_of

if TYPE_CHECKING:
    from agent.session import Session

log = logging.getLogger(__name__)

TOOL = "summarize"
TRIES = 3
"""How often the model is asked for one summary."""
SMALLER = 3
"""How often a request that does not fit is made smaller."""
OUTPUT_MOST, OUTPUT_SHARE, OUTPUT_LEAST = 8_000, 0.25, 256
"""Tokens of the answer, its thoughts included: at most, as a share of the window, at least."""

RESERVE_MOST, RESERVE_SHARE = 1_500, 0.1
"""Tokens that the request must leave for its answer; where it does not, a part of it is left out."""


class Summaries:
    """The summaries of one turn.

    Every method that may end the turn returns the sentence that says why, or None.
    """

    def __init__(self, session: "Session", turn: int) -> None:
        self.session, self.turn = session, turn
        self.count = 0
        self.asked = False
        """The model called `summarize`."""
        self.progressed = True
        """A call succeeded, or there was no summary yet."""
        self.stepped_since = True
        self.window = session.model.context_window
        """Shrinks when the model refuses a prompt that should have fitted."""

    async def ahead(self, step: int) -> str | None:
        """Summarise before a step where the budget is used up or the model asked for it."""
        self.window = min(self.window, self.session.model.context_window) or self.session.model.context_window
        asked, self.asked = self.asked, False
        if not self.window or self.count >= self.session.max_summaries:
            return None
        if next_tokens(self.session.state) <= self.limit:
            if asked and self.progressed and len(self.session.state.messages) > 1:
                await self._summarise("tool", step)
            return None
        if not self.progressed:
            return _stuck() if self.stepped_since else None
        await self._summarise("budget", step)
        return None

    async def overflowed(self, step: int, error: ContextOverflow) -> str | None:
        """Summarise because the model refused the prompt of a step; the step is then tried again."""
        most = self.session.max_summaries
        if self.count >= most:
            times = (
                f"the conversation was summarised {self.count} times in this turn, the most that is allowed; "
            )
            return f"the context is full: {times if most else ''}{error.message}"
        if not self.progressed:
            return _stuck()
        known = next_tokens(self.session.state)
        self.window = min(self.window or known, known)
        await self._summarise("overflow", step)
        return None

    def stepped(self, generation: Generation, outcomes: Sequence[str]) -> None:
        """What a step did: whether it was progress, and whether it asked for a summary."""
        done = [
            call.name for call, outcome in zip(generation.calls, outcomes, strict=False) if outcome == "ok"
        ]
        self.stepped_since = True
        self.asked = TOOL in done
        self.progressed = self.progressed or any(name != TOOL for name in done)

    @property
    def limit(self) -> int:
        """Tokens of a prompt from which on it is summarised."""
        return int(self.window * self.session.summarize_at)

    # ---- one summary

    async def _summarise(self, trigger: Trigger, step: int) -> None:
        state = self.session.state
        before, refused = next_tokens(state), list[RefusedSummary]()
        generation, cut = await self._written(trigger, step, refused)
        if generation is None and trigger == "tool" and before <= self.limit:
            # Nothing is lost by going on with all of it.
            why = refused[-1].reason if refused else "the request did not fit"
            message = f"the conversation was not summarised: {why}"
            error = ErrorData(where="loop", error="summary_refused", message=message)
            await self.session.record("error", error, turn=self.turn, step=step)
            return
        segment = (
            pruned(state, self.window, self.limit)
            if generation is None
            else opened(state, generation.text, self.window)
        )
        self.count, self.progressed, self.stepped_since = self.count + 1, False, False
        record = self._record(trigger, segment, generation, refused, before, cut)
        await self.session.record("summary", record, turn=self.turn, step=step)

    def _record(
        self,
        trigger: Trigger,
        segment: Segment,
        generation: Generation | None,
        refused: list[RefusedSummary],
        before: int,
        cut: bool,
    ) -> Summary:
        state = self.session.state
        return Summary(
            trigger=trigger,
            segment_before=state.segment,
            segment=state.segment + 1,
            number=state.ledger.summaries + 1,
            generation=generation.id if generation else None,
            text=generation.text.strip() if generation else "",
            fallback=generation is None,
            pruned=cut,
            refused=refused,
            input=generation.usage.input if generation else None,
            output=generation.usage.output if generation else None,
            tokens_before=before,
            tokens_after=fixed_tokens(state) + segment.tokens,
            dropped=len(state.messages) - segment.kept,
            kept=segment.kept,
            messages=segment.messages,
        )

    async def _written(
        self, trigger: Trigger, step: int, refused: list[RefusedSummary]
    ) -> tuple[Generation | None, bool]:
        """An accepted summary, or None; and whether it was made from a part of the conversation."""
        state = self.session.state
        output = max(OUTPUT_LEAST, min(OUTPUT_MOST, int(self.window * OUTPUT_SHARE)))
        room = self.window - min(RESERVE_MOST, int(self.window * RESERVE_SHARE))
        messages, cut, smaller, asking = list(state.messages), False, 0, self._asking("")
        if trigger == "overflow" or next_tokens(state) + tokens_of(state, [asking]) > room:
            messages, cut = self._smaller(messages, room), True
        while len(refused) < TRIES:
            try:
                context = await build(
                    self.session, messages=[*messages, asking], max_tokens=output, purpose="summary"
                )
                generation = await generate(self.session, self.turn, step, context)
            except ContextOverflow as error:
                log.info(
                    "session %s: the request to summarise does not fit: %s", self.session.id, error.message
                )
                smaller += 1
                if smaller > SMALLER:
                    return None, cut
                room //= 2
                messages, cut = self._smaller(messages, room), True
                continue
            why = self._refusal(generation)
            if why is None:
                return generation, cut
            refused.append(RefusedSummary(generation=generation.id, reason=why))
            asking = self._asking(why)
        return None, cut

    def _smaller(self, messages: list[dict[str, Any]], room: int) -> list[dict[str, Any]]:
        """The conversation within `room` tokens, system message, tools and the request included."""
        state = self.session.state
        free = room - fixed_tokens(state) - tokens_of(state, [self._asking("")])
        target = min(int(max(0, free) * state.ratio), size_of(messages) - 1)
        return fitted(messages, target)

    def _asking(self, why: str) -> dict[str, Any]:
        again = f"\n\nYour last summary was not taken: {why}." if why else ""
        return {"role": "user", "content": prompts.text("summarize") + again}

    def _refusal(self, generation: Generation) -> str | None:
        state = self.session.state
        segment = opened(state, generation.text, self.window)
        offer = Offer(
            text=generation.text,
            calls=len(generation.calls),
            finish=generation.finish,
            before=tokens_of(state, state.messages),
            after=segment.tokens,
            room=self.limit - fixed_tokens(state),
        )
        ledger = state.ledger
        commands = [command for _, command in ledger.commands]
        return refusal(offer, ledger.open_todos(), ledger.touched(), commands)


def _stuck() -> str:
    return (
        "the context is full again, and nothing succeeded since it was last summarised; "
        "send a message that says how to go on, or ask for less at once"
    )
