"""The in-process engine: one causal language model, one thread, many jobs in each pass."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from agent.engine.protocol import (
    CacheMode,
    Capability,
    Completion,
    EngineBusy,
    EngineError,
    Job,
    OnToken,
    PauseMode,
)
from agent.engine.scheduler import EngineSettings, Scheduler
from agent.engine.trie import Trie
from agent.engine.work import Work

log = logging.getLogger(__name__)
T = TypeVar("T")

CAPABILITIES: Final[frozenset[Capability]] = frozenset(
    ("logprobs", "versions", "prefix_cache", "constraint", "score", "pause", "load", "delta")
)


class TorchEngine:
    """Serves one model in fp32, from a Hugging Face folder."""

    def __init__(self, path: Path, version: int = 0, settings: EngineSettings | None = None) -> None:
        """Loads nothing until `start` or the first job."""
        self.settings = settings or EngineSettings()
        self._scheduler = Scheduler(path, version, self.settings)
        self._flying = 0
        self._closed = False

    @property
    def path(self) -> Path:
        return self._scheduler.path

    @property
    def version(self) -> int:
        return self._scheduler.version

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What the loaded model can; `routes` where it has experts that can be asked."""
        network = self._scheduler.network
        more: set[Capability] = {"routes"} if network is not None and network.experts else set()
        less: set[Capability] = set() if network is None or network.ragged else {"score"}
        return (CAPABILITIES | more) - less

    @property
    def loaded(self) -> bool:
        return self._scheduler.network is not None

    async def start(self) -> None:
        """Load the weights unless they are loaded."""
        if not self.loaded:
            await self.load(self.path, self.version)

    async def load(self, path: Path, version: int, cache: CacheMode = "recompute") -> None:
        await self._between(lambda: self._scheduler.load(path, version, cache))
        log.info("loaded %s, version %d", path.name, version)

    async def pause(self, mode: PauseMode = "keep") -> None:
        done = await self._between(lambda: self._scheduler.pause(mode))
        await asyncio.wrap_future(done)

    async def resume(self) -> None:
        await self._between(self._scheduler.resume)

    async def generate(self, job: Job, on_token: OnToken | None = None) -> Completion:
        self._check()
        if self._flying >= self.settings.rows + self.settings.waiting:
            raise EngineBusy(f"{self._flying} requests wait for the local model already; try later.")
        work = Work(job, on_token)
        self._flying += 1
        try:
            self._scheduler.submit(work)
            return await asyncio.shield(asyncio.wrap_future(work.future))
        finally:
            self._flying -= 1
            if not work.future.done():
                work.stop.set()
                self._scheduler.wake()

    async def score(
        self, key: str, ids: Sequence[int], continuations: Sequence[Sequence[int]]
    ) -> list[float]:
        given, trie = list(ids), Trie(continuations)
        if not given:
            raise EngineError("There is nothing to continue: the prompt has no tokens.")
        return await self._between(lambda: self._scheduler.score(key, given, trie))

    async def close(self) -> None:
        """Stop what runs, forget the weights."""
        if not self._closed:
            self._closed = True
            await asyncio.to_thread(self._scheduler.stop)

    async def _between(self, act: Callable[[], T]) -> T:
        self._check()
        return await asyncio.wrap_future(self._scheduler.between(act))

    def _check(self) -> None:
        if self._closed:
            raise EngineError("The engine is closed; open the model again.")
