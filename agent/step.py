"""One model call of a turn: sampled, streamed, recorded exactly."""

import asyncio
import logging
from contextlib import aclosing
from typing import Any

from ulid import ULID

from agent.context import Context, build
from agent.events import Call, ErrorData, Generation, TokenTrace, now
from agent.models.client import Completion, Delta, ModelError, Retry
from agent.prompt_chain import IdNode, chain_ids
from agent.session import Session
from agent.streaming import Stream
from tools.workspace import content_hash

log = logging.getLogger(__name__)

TRIES = 3
"""How often a generation that broke off midway is made again."""


async def generate(session: Session, turn: int, step: int, context: Context | None = None) -> Generation:
    """Sample once and record the generation. Without a `context` it is the session's next step.

    What answers a request to summarise is not streamed: it is no message to the user.

    Raises:
        ModelError: the model could not answer; what it had streamed stays in the log.
        LogError: the generation could not be stored.
    """
    for attempt in range(1, TRIES + 1):
        try:
            return await _sample(session, turn, step, context)
        except ModelError as error:
            if not error.retryable or attempt == TRIES:
                raise
            await _note_retry(session, turn, step, error.message, attempt)
            await asyncio.sleep(0.5 * 2**attempt)
    raise AssertionError("unreachable: the last try returns or raises")


async def _sample(session: Session, turn: int, step: int, context: Context | None) -> Generation:
    context = context or await build(session)
    message_id, started, shown = str(ULID()), now(), context.request.purpose == "step"
    text = Stream(session, "text", message_id, turn, step)
    # An id of its own: offsets of thoughts and of text are counted apart, and marks name the id alone.
    thought = Stream(session, "thought", str(ULID()), turn, step)
    first: int | None = None
    completion: Completion | None = None
    try:
        async with aclosing(session.model.sample(context.request)) as chunks:
            async for chunk in chunks:
                match chunk:
                    case Delta():
                        first = first or now()
                        if shown:
                            (text if chunk.kind == "text" else thought).push(chunk.text)
                        await asyncio.sleep(0)  # whoever watches is sent it before more is read
                    case Retry():
                        await _note_retry(session, turn, step, chunk.message, chunk.attempt)
                    case Completion():
                        completion = chunk
    finally:
        thought.close()
        text.close()
    if completion is None:
        raise ModelError("the model's answer ended without a completion; try again", retryable=True)
    tokens, ids, blobs = _trace(session, completion)
    generation = _record(session, context, completion, tokens, message_id, started, first)
    generation, held = session.redaction.generation(generation)
    await session.record("generation", generation, turn=turn, step=step, blobs={**context.blobs, **blobs})
    session.node, session.ids = context.node, ids
    if held is not None:
        error = ErrorData(where="model", error="secret_in_generation", message=held)
        await session.record("error", error, turn=turn, step=step)
    return generation


def _trace(
    session: Session, completion: Completion
) -> tuple[TokenTrace | None, IdNode | None, dict[str, bytes]]:
    """The token trace with its prompt ids in the chain, where the engine gave token ids."""
    if completion.tokens is None or completion.prompt_ids is None:
        return completion.tokens, None, {}
    ids, blobs = chain_ids(session.ids, completion.prompt_ids)
    where: dict[str, Any] = {"prompt": ids.hash, "prompt_length": len(completion.prompt_ids)}
    if completion.routes is not None:
        where["routes"] = content_hash(completion.routes)
        blobs[where["routes"]] = completion.routes
    return completion.tokens.model_copy(update=where), ids, blobs


def _record(
    session: Session,
    context: Context,
    completion: Completion,
    tokens: TokenTrace | None,
    message_id: str,
    started: int,
    first: int | None,
) -> Generation:
    model, price = session.model, session.model.price
    return Generation(
        id=str(ULID()),
        message_id=message_id,
        model=model.name,
        policy=model.policy,
        request_id=completion.request_id,
        prompt=context.prompt,
        sampling=context.request.sampling.record() | (completion.sampling or {}),
        grammar=completion.grammar,
        text=_unicode(completion.text),
        thought=_unicode(completion.thought),
        calls=_distinct(completion.calls),
        finish=completion.finish,
        usage=completion.usage,
        cost=price.cost(completion.usage) if price else None,
        tokens=tokens,
        started=started,
        first_token=first,
        ended=now(),
        retries=completion.retries,
        segment=session.state.segment,
        purpose=context.request.purpose,
        steered=context.steered,
    )


def _distinct(calls: list[Call]) -> list[Call]:
    """Every call gets an id of its own: providers repeat them, within an answer and across answers."""
    return [
        Call(
            id=str(ULID()), name=_unicode(call.name), arguments=_unicode(call.arguments), provider_id=call.id
        )
        for call in calls
    ]


def _unicode(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


async def _note_retry(session: Session, turn: int, step: int, message: str, attempt: int) -> None:
    log.info("session %s: model retry %d: %s", session.id, attempt, message)
    error = ErrorData(where="model", error="provider", message=message, retry=attempt)
    await session.record("error", error, turn=turn, step=step)
