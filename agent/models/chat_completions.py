"""Any OpenAI-compatible endpoint, through the `openai` SDK.

The SDK (connections, TLS, proxies, headers) is imported when the first sample is made, or ahead of it
by `warm`. Its stream is read as bytes: parsing each chunk into its models would cost more than the rest
of a delta's way to the client.
"""

import asyncio
import json
import logging
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Final, Literal

import orjson

from agent.models import windows
from agent.models.answer import Answer, ReportedError
from agent.models.client import Chunk, ContextOverflow, Delta, ModelError, ModelStalled, Request, Retry
from agent.models.connection import Connection, RequestFailed
from agent.models.endpoint import endpoint_of
from agent.models.failures import Failures
from agent.models.retries import backoff
from agent.models.settings import ModelSettings
from agent.models.sse import MAX_EVENT, EventStream

logger = logging.getLogger(__name__)

_BYTES_PER_TOKEN: Final = 3.5
_USAGE_S: Final = 10.0
"""How long the usage may come after the last token."""
_DRAIN_S: Final = 0.25
_LEAST_ANSWER: Final = 256
_COMPACT_BELOW: Final = 16_000


class ChatCompletions:
    """A model behind `POST {base_url}/chat/completions`. Safe for many samples at once.

    `context_window` and `profile` are final after `warm` (or the first sample): what the settings leave
    open is asked of the endpoint.
    """

    def __init__(self, name: str, settings: ModelSettings, environ: Mapping[str, str] = os.environ) -> None:
        self.name = name
        self.policy: str | None = None
        self.settings = settings
        self.endpoint = endpoint_of(settings, environ)
        self.price = settings.price
        self._window_known = settings.context_window is not None
        table = windows.known_window(settings.model)
        self.context_window = settings.context_window or table or windows.DEFAULT
        self.profile: Literal["full", "compact"] = settings.profile or self._suiting()
        self._failures = Failures(self.endpoint, settings.model, name)
        self._connection = Connection(self.endpoint, self._failures, name, settings.connect_s)
        self._ready = asyncio.Lock()
        self._warm = False
        self._refused: set[str] = set()
        self._bytes_per_token = _BYTES_PER_TOKEN

    async def warm(self) -> None:
        """Import the SDK (in a thread) and ask the endpoint for the window, where that is open.

        Never fails because of the endpoint: what is wrong there is reported by the first sample.

        Raises:
            ModelError: the address is none.
        """
        async with self._ready:
            if self._warm:
                return
            await self._connection.open()
            if not self._window_known and not self.endpoint.hosted_by_openai:
                await self._find_window()
            self._warm = True

    async def sample(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """One generation.

        Requests are made again (announced by `Retry`) only while nothing of the answer was streamed.

        Raises:
            ContextOverflow: the prompt does not fit, whether or not the endpoint says so.
            ModelStalled: nothing came for too long.
            ModelError: anything else; `retryable` where the same request may succeed later.
        """
        endpoint = self.endpoint
        if endpoint.key is None and (self.settings.api_key_env or endpoint.hosted_by_openai):
            raise ModelError(
                f"{self.name} needs a key: the environment variable {endpoint.key_env} is not set. Set it to"
                f" a key of {endpoint.shown}, or choose another model."
            )
        if not self._warm:
            await self.warm()
        attempt, retries = 1, 0
        while True:
            body, payload = self._fitted(self._body(request))
            answer = Answer()
            try:
                async with aclosing(self._stream(payload, answer)) as deltas:
                    async for delta in deltas:
                        yield delta
                break
            except RequestFailed as failure:
                report = failure.report
                optional = {key: value for key, value in body.items() if key not in _NEEDED}
                name = report.refused(optional) if report is not None else None
                if name is not None and not answer.started and self._do_without(name):
                    continue
                error, wait = await self._explain(failure, payload)
                tries = min(failure.tries or self.settings.tries, self.settings.tries)
            if not error.retryable or isinstance(error, ModelStalled) or answer.started:
                raise error
            if attempt >= tries:
                raise ModelError(error.message + (f" Tried {attempt} times." if attempt > 1 else ""))
            seconds = backoff(attempt, wait)
            yield Retry(attempt=attempt, wait_s=seconds, message=error.message)
            await asyncio.sleep(seconds)
            attempt, retries = attempt + 1, retries + 1
        completion = answer.completion(
            retries, {key: item for key, item in body.items() if key not in _NOT_SAMPLING}
        )
        if completion.usage.input:
            self._bytes_per_token = max(1.0, len(payload) / completion.usage.input)
        if completion.finish == "length" and not answer.started:
            raise ContextOverflow(
                f"{self.name} stopped for length before its first token: the prompt fills its window"
                f" ({self.context_window} tokens)."
            )
        if not self._window_known and self.settings.provider == "ollama":
            await self._find_window()
        yield completion

    async def models(self, path: str = "/models") -> list[dict[str, Any]]:
        """The entries of the endpoint's list of models.

        Raises:
            ModelError: it has none, or cannot be reached.
        """
        value = await self._connection.get(path)
        entries = value.get("data", value.get("models")) if isinstance(value, dict) else value
        if not isinstance(entries, list):
            raise ModelError(f"{self.endpoint.shown} answered {path} with no list of models.")
        return [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]

    async def close(self) -> None:
        """Close the connections; the client may be used again and then opens new ones."""
        self._warm = False
        await self._connection.close()

    # -- one attempt ------------------------------------------------------------------------------------

    async def _stream(self, payload: bytes, answer: Answer) -> AsyncGenerator[Delta, None]:
        """The deltas of one attempt; closing it closes the HTTP stream. Raises `RequestFailed`."""
        import ssl

        import anyio
        import httpx2

        settings = self.settings
        begun = time.monotonic()
        try:
            async with asyncio.timeout(settings.first_token_s):
                response = await self._connection.post("/chat/completions", payload)
        except TimeoutError:
            raise RequestFailed(
                error=self._stalled(begun, "accepted the request and did not answer")
            ) from None
        events = EventStream()
        source = response.aiter_bytes()
        waited = time.monotonic() - begun
        """Seconds spent waiting since the last event; what the consumer takes does not count."""
        try:
            if "json" in response.headers.get("content-type", ""):
                data = await self._whole(source, begun)
                found = [*events.feed(data), *events.end()] if data.lstrip().startswith(b"data:") else [data]
                for delta in _merged([delta for event in found for delta in answer.feed(event)]):
                    yield delta
                if not answer.finished and not answer.started:
                    events.garbage = events.garbage or data[:200]
                    raise RequestFailed(error=self._unfinished(answer, events))
                answer.done = True
                return
            while not answer.done:
                if answer.finish is not None:
                    limit = _USAGE_S
                elif answer.started:
                    # Comments that keep the connection alive are no answer: they buy time, not for ever.
                    patience = max(settings.first_token_s, settings.between_tokens_s)
                    limit = min(settings.between_tokens_s, patience - waited)
                else:
                    limit = settings.first_token_s - waited
                before = time.monotonic()
                try:
                    async with asyncio.timeout(limit):
                        chunk = await anext(source, None)
                except TimeoutError:
                    if answer.finished:
                        return
                    what = "stopped in the middle of its answer" if answer.started else "sent no first token"
                    raise RequestFailed(error=self._stalled(before, what)) from None
                waited += time.monotonic() - before
                found = events.end() if chunk is None else events.feed(chunk)
                if found:
                    deltas = [delta for data in found for delta in answer.feed(data)]
                    if answer.started:
                        waited = 0.0
                    for delta in deltas if len(deltas) < 2 else _merged(deltas):
                        yield delta
                if chunk is None:
                    break
            else:
                await _drain(source)
            if not answer.finished:
                raise RequestFailed(error=self._unfinished(answer, events))
        except (httpx2.RequestError, ssl.SSLError, anyio.EndOfStream) as error:
            if not answer.finished:
                detail = self._failures.clean(str(error) or type(error).__name__)
                raise RequestFailed(error=self._died(answer, detail)) from None
        except ReportedError as error:
            report = self._failures.report(None, {"error": error.error})
            raise RequestFailed(report=report) from None
        except ModelError as error:
            raise RequestFailed(error=error, tries=2) from None
        finally:
            await response.aclose()

    async def _whole(self, source: AsyncIterator[bytes], begun: float) -> bytes:
        """The body of an endpoint that answered at once instead of streaming."""
        body = bytearray()
        try:
            async with asyncio.timeout(self.settings.first_token_s):
                async for chunk in source:
                    body += chunk
                    if len(body) > MAX_EVENT:
                        raise ModelError(f"The endpoint's answer is larger than {MAX_EVENT >> 20} MiB.")
        except TimeoutError:
            raise RequestFailed(error=self._stalled(begun, "did not finish its answer")) from None
        return bytes(body)

    # -- what went wrong --------------------------------------------------------------------------------

    async def _explain(self, failure: RequestFailed, payload: bytes) -> tuple[ModelError, float | None]:
        report = failure.report
        if report is None:
            return failure.error, None
        listed = None
        if report.no_model:
            try:
                listed = [entry["id"] for entry in await self.models()]
            except ModelError as error:
                logger.debug("no list of models for the message: %s", error.message)
        estimate = int(len(payload) / self._bytes_per_token)
        return self._failures.error(report, estimate=estimate, window=self.context_window, listed=listed)

    def _stalled(self, since: float, what: str) -> ModelStalled:
        seconds = time.monotonic() - since
        return ModelStalled(f"{self.endpoint.shown} {what}: nothing for {seconds:.0f} s.", retryable=True)

    def _died(self, answer: Answer, detail: str) -> ModelError:
        when = (
            f"after {answer.characters} characters of its answer"
            if answer.started
            else "before its answer began"
        )
        return ModelError(
            f"The connection to {self.endpoint.shown} broke {when} ({detail}). The model's server may have"
            " stopped or run out of memory; try again.",
            retryable=True,
        )

    def _unfinished(self, answer: Answer, events: EventStream) -> ModelError:
        if events.garbage and not answer.started:
            start = self._failures.clean(events.garbage.decode("utf-8", "replace"))[:120]
            return ModelError(
                f"{self.endpoint.shown} answered with something that is no chat completion; it starts with"
                f" {start!r}. Is base_url an OpenAI-compatible address (most end in /v1)?"
            )
        return self._died(answer, "it ended without a finish reason")

    # -- the request ------------------------------------------------------------------------------------

    def _body(self, request: Request) -> dict[str, Any]:
        """The request. Tools and messages come last and in order, so that requests share their start."""
        settings, sampling = self.settings, request.sampling
        temperature = settings.temperature if sampling.temperature is None else sampling.temperature
        limit = "max_completion_tokens" if self.endpoint.hosted_by_openai else "max_tokens"
        if limit in self._refused:
            limit = "max_tokens" if limit == "max_completion_tokens" else "max_completion_tokens"
        token_ids = settings.provider == "vllm" if settings.token_ids is None else settings.token_ids
        optional = {
            "stream_options": {"include_usage": True},
            "temperature": temperature,
            "top_p": sampling.top_p,
            limit: sampling.max_tokens or settings.max_output_tokens,
            "seed": sampling.seed,
            "stop": list(sampling.stop) or None,
            "return_token_ids": token_ids or None,
            "logprobs": token_ids or None,
            **settings.extra,
        }
        body: dict[str, Any] = {"model": settings.model, "stream": True}
        body |= {key: item for key, item in optional.items() if item is not None and key not in self._refused}
        if request.tools:
            body["tools"] = request.tools
        body["messages"] = request.messages
        return body

    def _fitted(self, body: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """The body with its bytes; the answer's limit lowered to what the window leaves for it.

        Endpoints refuse a prompt that fits when prompt and limit together do not.
        """
        payload = _serialised(body)
        limit = next((name for name in ("max_tokens", "max_completion_tokens") if name in body), None)
        room = self.context_window - int(1.05 * len(payload) / self._bytes_per_token)
        if limit is None or body[limit] <= room or room < _LEAST_ANSWER:
            return body, payload
        body[limit] = room
        return body, _serialised(body)

    def _do_without(self, name: str) -> bool:
        """Leave out a field that the endpoint refuses, from now on. False when that was tried already."""
        if name in self._refused:
            return False
        logger.info("%s does not accept %s; going on without it", self.endpoint.shown, name)
        self._refused.add(name)
        return True

    async def _find_window(self) -> None:
        """Ask the endpoint how large the window is; what it does not say stays as it is."""
        try:
            root = self.endpoint.base_url.removesuffix("/v1")
            if self.settings.provider == "ollama":
                found = windows.ollama_window(
                    await self._connection.get(f"{root}/api/ps"), self.settings.model
                )
                self._window_known = found is not None
                found = found or windows.OLLAMA_DEFAULT
            else:
                lmstudio = self.settings.provider == "lmstudio"
                listed = await (self.models(f"{root}/api/v0/models") if lmstudio else self.models())
                entries = {entry["id"]: entry for entry in listed}
                found = windows.window_of(entries.get(self.settings.model, {}))
                self._window_known = found is not None
        except ModelError as error:
            logger.debug("the window of %s stays assumed: %s", self.name, error.message)
            return
        if found is not None:
            self.context_window = found
            self.profile = self.settings.profile or self._suiting()

    def _suiting(self) -> Literal["full", "compact"]:
        return "compact" if self.context_window < _COMPACT_BELOW else "full"


_NEEDED: Final = frozenset({"model", "stream", "messages", "tools"})
_NOT_SAMPLING: Final = _NEEDED | {"stream_options"}


def _serialised(body: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(body)
    except (orjson.JSONEncodeError, TypeError):
        # A lone surrogate in a text, or an integer beyond 64 bits.
        return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


def _merged(deltas: list[Delta]) -> list[Delta]:
    """Neighbours of one kind as one delta: what arrived together goes out together."""
    merged: list[Delta] = []
    parts: list[str] = []
    for delta in deltas:
        if merged and merged[-1].kind == delta.kind:
            parts.append(delta.text)
            continue
        if len(parts) > 1:
            merged[-1] = Delta(merged[-1].kind, "".join(parts))
        merged.append(delta)
        parts = [delta.text]
    if len(parts) > 1:
        merged[-1] = Delta(merged[-1].kind, "".join(parts))
    return merged


async def _drain(source: AsyncIterator[bytes]) -> None:
    """Read the end of the body, so that the connection can be used again; not for long."""
    try:
        async with asyncio.timeout(_DRAIN_S):
            async for _ in source:
                pass
    except TimeoutError:
        logger.debug("the endpoint holds its stream open after the end")
