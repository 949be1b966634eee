"""The in-process engine: one Hugging Face causal language model, one thread, one stream at a time."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import psutil
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.cache_utils import Cache
from transformers.utils import logging as transformers_logging

from agent.engine.cache import PrefixCache, crop, is_croppable, new_cache
from agent.engine.protocol import Capability, Completion, EngineBusy, EngineError, Finish, Job, OnToken
from agent.engine.sampling import draw, logprobs_of
from agent.engine.trie import Trie

log = logging.getLogger(__name__)
T = TypeVar("T")

CAPABILITIES: Final[frozenset[Capability]] = frozenset(
    ("logprobs", "versions", "prefix_cache", "constraint", "score", "load")
)
PREFILL: Final = 512
"""Prompt ids per forward pass: a cancelled request frees the engine within one such pass."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """`threads` work on a prompt (None = physical cores, at most 4), `decode_threads` on each new token:
    reading the weights bounds that, and a second thread costs its processor time for nothing.

    `cache_bytes` is what the keys and values of finished requests may hold; `waiting` how many requests
    may stand in line.
    """

    threads: int | None = None
    decode_threads: int = 1
    cache_bytes: int = 384 << 20
    waiting: int = 32

    def prefill_threads(self) -> int:
        return self.threads or max(1, min(psutil.cpu_count(logical=False) or 1, 4))


class _Cancelled(Exception):
    """The awaiting task went away; unwinds the engine's thread."""


class TorchEngine:
    """Serves one model in fp32. All work is done in one thread, in the order it was asked for."""

    def __init__(self, path: Path, version: int = 0, settings: EngineSettings | None = None) -> None:
        """Holds nothing until `load`; `path` is a Hugging Face folder."""
        self.path = path
        self.settings = settings or EngineSettings()
        self._version = version
        self._model: PreTrainedModel | None = None
        self._prefixes = PrefixCache(self.settings.cache_bytes)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="engine")
        self._flags: set[threading.Event] = set()
        self._closed = False

    @property
    def version(self) -> int:
        return self._version

    @property
    def capabilities(self) -> frozenset[Capability]:
        return CAPABILITIES

    @property
    def loaded(self) -> bool:
        return self._model is not None

    async def start(self) -> None:
        """Load the weights of `path` unless they are loaded."""
        await self._submit(lambda stop: self._load(self.path, self._version) if self._model is None else None)

    async def load(self, path: Path, version: int) -> None:
        await self._submit(lambda stop: self._load(path, version))

    async def generate(self, job: Job, on_token: OnToken | None = None) -> Completion:
        return await self._submit(lambda stop: self._generate(job, on_token, stop))

    async def score(
        self, key: str, ids: Sequence[int], continuations: Sequence[Sequence[int]]
    ) -> list[float]:
        return await self._submit(lambda stop: self._score(key, ids, continuations, stop))

    async def close(self) -> None:
        """Stop what runs, forget the weights."""
        self._closed = True
        for flag in list(self._flags):
            flag.set()
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)
        self._prefixes.clear()
        self._model = None

    async def _submit(self, work: Callable[[threading.Event], T]) -> T:
        if self._closed:
            raise EngineError("The engine is closed; open the model again.")
        if len(self._flags) > self.settings.waiting:
            raise EngineBusy(f"{len(self._flags)} requests wait for the local model already; try later.")
        stop = threading.Event()
        self._flags.add(stop)

        def run() -> T:
            if stop.is_set():
                raise _Cancelled
            return work(stop)

        future = self._thread.submit(run)
        future.add_done_callback(lambda _: self._flags.discard(stop))
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closed and task is not None and not task.cancelling():
                raise EngineError("The engine was closed before it came to this request.") from None
            stop.set()
            raise
        except _Cancelled:
            raise EngineError("The engine was closed while it worked on this request.") from None

    # From here on: the engine's thread.

    def _load(self, path: Path, version: int) -> None:
        transformers_logging.disable_progress_bar()
        torch.set_num_threads(self.settings.prefill_threads())
        self._prefixes.clear()
        try:
            model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, local_files_only=True)
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise EngineError(f"{path} cannot be loaded as a causal language model: {error}") from error
        self._model = model.eval()
        self.path, self._version = path, version
        log.info("loaded %s, version %d", path.name, version)

    def _ready(self) -> PreTrainedModel:
        if self._model is None:
            self._load(self.path, self._version)
        assert self._model is not None
        return self._model

    @torch.inference_mode()
    def _generate(self, job: Job, on_token: OnToken | None, stop: threading.Event) -> Completion:
        model, started = self._ready(), time.perf_counter()
        if not job.ids:
            raise EngineError("There is nothing to continue: the prompt has no tokens.")
        draft = _Draft(job, on_token)
        generator = torch.Generator()
        generator.seed() if job.sampling.seed is None else generator.manual_seed(job.sampling.seed)
        with self._stream(model, job.key, job.ids, stop) as stream:
            cached = len(stream.ids)
            torch.set_num_threads(self.settings.prefill_threads())
            row = stream.feed(job.ids[cached:])
            first_token_s = time.perf_counter() - started
            if job.opening:
                rows = torch.cat([row, stream.feed(job.opening, every=True)])
                ids = torch.tensor(job.opening)
                for id, logprob in zip(
                    job.opening, logprobs_of(rows[:-1], ids, job.sampling.temperature), strict=True
                ):
                    draft.add(id, logprob)
                row = rows[-1:]
            torch.set_num_threads(self.settings.decode_threads)
            while draft.finish is None:
                id, logprob = draw(row[0], job.sampling, generator, draft.allowed(row.shape[-1]))
                draft.add(id, logprob)
                if draft.finish is None:
                    row = stream.feed([id])
        return Completion(
            ids=draft.ids,
            logprobs=draft.logprobs,
            versions=[self._version] * len(draft.ids),
            finish_reason=draft.finish,
            cached=cached,
            constrained=draft.constrained,
            first_token_s=first_token_s,
            opening=len(job.opening),
        )

    @torch.inference_mode()
    def _score(
        self, key: str, ids: Sequence[int], continuations: Sequence[Sequence[int]], stop: threading.Event
    ) -> list[float]:
        model, trie = self._ready(), Trie(continuations)
        torch.set_num_threads(self.settings.prefill_threads())
        with self._stream(model, key, ids, stop) as stream:
            row = stream.feed(ids[len(stream.ids) :])
            if not is_croppable(stream.cache):
                raise EngineError("This model's state cannot be cut back, so it cannot score branches.")
            rows = torch.cat([row, stream.branch(trie)]) if len(trie.ids) else row
            steps = torch.log_softmax(rows.float(), dim=-1)
        values = [float(steps[parent + 1, id]) for id, parent in zip(trie.ids, trie.parents, strict=True)]
        return trie.sums(values)

    @contextmanager
    def _stream(
        self, model: PreTrainedModel, key: str, ids: Sequence[int], stop: threading.Event
    ) -> Iterator["_Stream"]:
        """What the cache knows of `ids`, fed further by the caller and kept afterwards, come what may."""
        cache, cached = self._prefixes.take(key, ids)
        stream = _Stream(model, cache or new_cache(model.config), list(ids[:cached]), stop)
        try:
            yield stream
        finally:
            self._prefixes.put(key, stream.ids, stream.cache)


class _Draft:
    """A completion in the making."""

    def __init__(self, job: Job, on_token: OnToken | None) -> None:
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.constrained = False
        self._job, self._on_token = job, on_token
        self.finish: Finish | None = None

    def allowed(self, vocabulary: int) -> torch.Tensor | None:
        mask = self._job.constraint.allowed() if self._job.constraint else None
        if mask is None:
            return None
        self.constrained = True
        # A model's output is often padded beyond its tokenizer's vocabulary: the rest is never allowed.
        allowed = torch.zeros(vocabulary, dtype=torch.bool)
        allowed[: len(mask)] = torch.as_tensor(mask[:vocabulary], dtype=torch.bool)
        return allowed

    def add(self, id: int, logprob: float) -> None:
        self.ids.append(id)
        self.logprobs.append(logprob)
        if self._job.constraint:
            self._job.constraint.accept(id)
        stop = self._on_token(id, logprob) if self._on_token else False
        if id in self._job.sampling.eos_ids:
            self.finish = "eos"
        elif stop:
            self.finish = "stop"
        elif len(self.ids) >= self._job.sampling.max_tokens:
            self.finish = "length"


class _Stream:
    """A growing sequence: `ids` are exactly those whose keys and values `cache` holds."""

    def __init__(self, model: PreTrainedModel, cache: Cache, ids: list[int], stop: threading.Event) -> None:
        self.model, self.cache, self.ids, self.stop = model, cache, ids, stop

    def feed(self, ids: Sequence[int], every: bool = False) -> torch.Tensor:
        """Logits `[1, vocabulary]` after the last id, or `[len(ids), vocabulary]` after each."""
        rows: list[torch.Tensor] = []
        for start in range(0, len(ids), PREFILL):
            if self.stop.is_set():
                raise _Cancelled
            part = list(ids[start : start + PREFILL])
            output: Any = self.model(
                torch.tensor([part]), past_key_values=self.cache, logits_to_keep=0 if every else 1
            )
            self.ids.extend(part)
            rows = [*rows, output.logits[0]] if every else [output.logits[0]]
        return torch.cat(rows)

    def branch(self, trie: Trie) -> torch.Tensor:
        """Logits `[nodes, vocabulary]` after each node of a trie on the sequence, which stays as it is."""
        if self.stop.is_set():
            raise _Cancelled
        past, nodes = len(self.ids), len(trie.ids)
        visible = torch.cat([torch.ones(nodes, past, dtype=torch.bool), trie.ancestry()], dim=1)
        mask = torch.zeros(nodes, past + nodes).masked_fill(~visible, torch.finfo(torch.float32).min)
        try:
            output: Any = self.model(
                torch.tensor([trie.ids]),
                past_key_values=self.cache,
                attention_mask=mask[None, None],
                position_ids=torch.tensor([[past + depth for depth in trie.depths]]),
            )
        finally:
            crop(self.cache, past)
        return output.logits[0]
