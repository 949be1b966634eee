"""An engine that is a vLLM server: the protocol's words said over HTTP."""

import asyncio
import base64
import logging
import uuid
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Final

import numpy as np

from agent.engine.protocol import (
    CacheMode,
    Capability,
    Completion,
    EngineBusy,
    EngineError,
    Finish,
    Job,
    OnToken,
    PauseMode,
)
from agent.engine.vllm.reference import differs, layout, reference
from agent.engine.vllm.server import NAME, VllmServer, VllmSettings

log = logging.getLogger(__name__)

PROBE: Final = (1, 5, 9, 2, 7, 3, 11, 4)
"""A prompt of ids that every vocabulary has."""


class VllmEngine:
    """Serves a Hugging Face folder by a vLLM process that lives as long as this object at most."""

    def __init__(self, path: Path, settings: VllmSettings, version: int = 0) -> None:
        """Starts nothing until `start` or the first job."""
        self.path, self.settings = path, settings
        self._server = VllmServer(path, settings)
        self._version = version
        self._capabilities: frozenset[Capability] = frozenset()
        self._starting = asyncio.Lock()
        self._changing = asyncio.Lock()
        self._paused = self._started = self._closed = False
        self._flying = 0

    @property
    def version(self) -> int:
        return self._version

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What the probe at the start found; empty before."""
        return self._capabilities

    async def start(self) -> None:
        async with self._starting:
            if self._closed:
                raise EngineError("The engine is closed; open the model again.")
            if not self._started:
                await self._server.start()
                try:
                    self._capabilities = await self._probe()
                except BaseException:
                    await self._server.stop()
                    raise
                self._started = True

    async def generate(self, job: Job, on_token: OnToken | None = None) -> Completion:
        if not job.ids:
            raise EngineError("There is nothing to continue: the prompt has no tokens.")
        if job.constraint is not None:
            raise EngineError("vLLM draws in another process and cannot ask this constraint; leave it out.")
        if job.opening and job.sampling.temperature not in (0.0, 1.0):
            raise EngineError(
                "vLLM scores given tokens at temperature 1 only: an opening needs temperature 0 or 1,"
                f" not {job.sampling.temperature}."
            )
        if self._flying >= self.settings.waiting:
            raise EngineBusy(f"{self._flying} requests wait for vLLM already; try later.")
        self._flying += 1
        try:
            await self.start()
            return await self._generate(job, on_token)
        finally:
            self._flying -= 1

    async def _generate(self, job: Job, on_token: OnToken | None) -> Completion:
        began, name = monotonic(), uuid.uuid4().hex
        ids: list[int] = []
        logprobs: list[float] = []
        finish: Finish | None = None
        cached, first = 0, None

        def take(id: int, logprob: float) -> Finish | None:
            ids.append(id)
            logprobs.append(logprob)
            stopped = on_token is not None and on_token(id, logprob)
            if id in job.sampling.eos_ids:
                return "eos"
            return "stop" if stopped else "length" if len(ids) >= job.sampling.max_tokens else None

        opening_version = self._version
        try:
            async with asyncio.timeout(job.deadline_s):
                if job.opening:
                    known = await self._scored([*job.ids, *job.opening])
                    opening_version = self._version
                    for id, logprob in zip(job.opening, known[len(job.ids) :], strict=True):
                        if finish := take(id, logprob):
                            break
                if finish is None:
                    async with self._server.stream("/v1/completions", self._body(job, name)) as events:
                        async for event in events:
                            usage = event.get("usage") or {}
                            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or cached
                            for choice in event.get("choices", ()):
                                drawn = choice.get("token_ids") or []
                                first = monotonic() - began if drawn and first is None else first
                                known = (choice.get("logprobs") or {}).get("token_logprobs") or []
                                for id, logprob in zip(drawn, known, strict=True):
                                    if finish := take(id, logprob):
                                        break
                                if choice.get("finish_reason") == "abort":
                                    finish = finish or "aborted"
                            if "error" in event:
                                raise EngineError(f"vLLM could not go on: {event['error']}")
                            # The last event, which tells the usage, follows the end that both sides see.
                            if finish == "stop" or (finish and usage):
                                break
        except TimeoutError:
            finish = "deadline"
        except asyncio.CancelledError:
            await asyncio.shield(self._record(name))
            raise
        if finish is None:
            raise EngineError("vLLM ended an answer without a reason.")
        record = await self._record(name)
        given = min(len(job.opening), len(ids))
        prompt = len(job.ids)
        spans = record["versions"][prompt + given - 1 :]
        versions = [opening_version] * given + spans[: len(ids) - given]
        if len(versions) != len(ids) or -1 in versions:
            raise EngineError("vLLM does not say which weights drew each token.")
        return Completion(
            ids, logprobs, versions, finish,
            routes=_routes(record, prompt + len(ids) - 1),
            cached=cached, first_token_s=first, opening=given,
        )  # fmt: skip

    async def score(
        self, key: str, ids: Sequence[int], continuations: Sequence[Sequence[int]]
    ) -> list[float]:
        if not ids:
            raise EngineError("There is nothing to continue: the prompt has no tokens.")
        await self.start()
        return [
            sum((await self._scored([*ids, *more]))[len(ids) :]) if more else 0.0 for more in continuations
        ]

    async def pause(self, mode: PauseMode = "keep") -> None:
        await self.start()
        async with self._changing:
            await self._server.post("/pause", mode=mode)
            self._paused = True

    async def resume(self) -> None:
        await self.start()
        async with self._changing:
            await self._server.post("/resume")
            self._paused = False

    async def load(self, path: Path, version: int, cache: CacheMode = "recompute") -> None:
        await self.start()
        async with self._changing:
            if await asyncio.to_thread(layout, path) != await asyncio.to_thread(layout, self.path):
                raise EngineError(f"{path} holds other tensors than {self.path}: it is another model.")
            expected = await asyncio.to_thread(reference, path, PROBE, self.settings.checked_bytes)
            if not self._paused:
                await self._server.post("/pause", mode="keep")
            try:
                await self._replace(path, version, cache)
            finally:
                if not self._paused:
                    await self._server.post("/resume")
            old, old_version = self.path, self._version
            self.path, self._version = path, version
            await self._verify(expected, old, old_version, cache)
        log.info("loaded %s, version %d", path.name, version)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._server.stop()

    async def _replace(self, path: Path, version: int, cache: CacheMode) -> None:
        await self._server.call("etude_load", str(path), str(version))
        # Later requests carry another salt, so only running ones can reach the old keys and values.
        running = "true" if cache == "recompute" else "false"
        await self._server.post("/reset_prefix_cache", reset_running_requests=running)

    async def _verify(self, expected: list[float] | None, old: Path, version: int, cache: CacheMode) -> None:
        """A server can report success and hold wrong weights: what it computes is what counts."""
        if expected is None or self._paused:
            log.warning("the weights of version %d were loaded but not compared", self._version)
            return
        got = (await self._scored(list(PROBE)))[1:]
        if differs(expected, got, self.settings.dtype):
            self.path, self._version = old, version
            await self._server.post("/pause", mode="keep")
            await self._replace(old, version, cache)
            await self._server.post("/resume")
            raise EngineError(
                "vLLM computes other log-probs than the new weights give; the old ones are back."
            )

    async def _scored(self, ids: list[int]) -> list[float]:
        """The log-prob of each id after those before it, at temperature 1; 0 for the first."""
        answer = await self._server.post(
            "/v1/completions",
            {"model": NAME, "prompt": ids, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
            | {"cache_salt": self._salt},
        )
        rows = answer["choices"][0]["prompt_logprobs"]
        return [0.0] + [row[str(id)]["logprob"] for id, row in zip(ids[1:], rows[1:], strict=True)]

    async def _record(self, name: str) -> dict[str, Any]:
        return await self._server.call("etude_take", name)

    @property
    def _salt(self) -> str:
        return f"version {self._version}"

    def _body(self, job: Job, name: str) -> dict[str, Any]:
        sampling = job.sampling
        return {
            "model": NAME,
            "prompt": [*job.ids, *job.opening],
            "request_id": name,
            "max_tokens": sampling.max_tokens - len(job.opening),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": sampling.seed,
            "ignore_eos": True,
            "stop_token_ids": sorted(sampling.eos_ids),
            "logprobs": 0,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            "cache_salt": self._salt,
        }

    async def _probe(self) -> frozenset[Capability]:
        """Ask for each thing once; what does not come back right is not there."""
        found: set[Capability] = {"prefix_cache"}
        hooked = await self._server.call("etude_begin", str(self._version))
        found.add("versions")
        if hooked.get("routes"):
            found.add("routes")
        body = {"model": NAME, "prompt": list(PROBE), "max_tokens": 1, "seed": 1, "return_token_ids": True}
        body |= {"logprobs": 2, "cache_salt": self._salt, "return_tokens_as_token_ids": True}
        gaps = []
        for temperature, top_p in ((1.0, 1e-6), (0.5, 1e-6)):
            answer = await self._server.post(
                "/v1/completions", body | {"temperature": temperature, "top_p": top_p}
            )
            choice = answer["choices"][0]
            if len(choice.get("token_ids") or ()) != 1 or choice.get("prompt_token_ids") != list(PROBE):
                raise EngineError("This vLLM does not give token ids back; Etude needs one that does (0.32).")
            best = sorted(choice["logprobs"]["top_logprobs"][0].values(), reverse=True)[:2]
            gaps.append(best[0] - best[1])
        if np.isfinite(gaps).all() and abs(gaps[1] - 2 * gaps[0]) < 1e-2 * max(1.0, gaps[1]):
            found.add("logprobs")
        try:
            await self._scored(list(PROBE))
            found.add("score")
            await self._server.post("/pause", mode="keep")
            await self._server.post("/resume")
            found |= {"pause", "load"}
        except (EngineError, KeyError, TypeError) as error:
            log.warning("this vLLM lacks something: %s", error)
        return frozenset(found)


def _routes(record: dict[str, Any], rows: int) -> "np.ndarray[Any, np.dtype[np.int16]] | None":
    if record["routes"] is None:
        return None
    flat = np.frombuffer(base64.b64decode(record["routes"]), "<i2").reshape(record["shape"])
    known = np.full((rows, *flat.shape[1:]), -1, np.int16)
    known[: min(rows, len(flat))] = flat[:rows]
    return known
