"""One job on its way through the engine."""

import threading
import time
from concurrent.futures import Future

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agent.engine.protocol import Completion, EngineError, Finish, Job, OnToken
from agent.engine.rows import Row
from agent.engine.sampling import draw, logprobs_of


class Work:
    """A job with what was drawn for it so far. Belongs to the engine's thread, but for `stop`.

    `todo` are ids that its row has yet to consume: the prompt at first, then the last id drawn.
    """

    def __init__(self, job: Job, on_token: OnToken | None) -> None:
        self.job = job
        self.stop = threading.Event()
        self.future: Future[Completion] = Future()
        self.row: Row | None = None
        self.todo: list[int] = list(job.ids)
        self.cached = 0
        self.ids: list[int] = []
        self.finish: Finish | None = None
        self.mixed = False
        """Some of its keys and values are of older weights than the others."""
        self._on_token = on_token
        self._logprobs: list[float] = []
        self._versions: list[int] = []
        self._constrained = False
        self._routes: list[NDArray[np.int16]] = []
        self._first_s: float | None = None
        self._began = time.monotonic()
        self._generator = torch.Generator()
        seed = job.sampling.seed
        self._generator.seed() if seed is None else self._generator.manual_seed(seed)

    @property
    def opened(self) -> bool:
        """Whether the given opening, if any, has been taken up."""
        return bool(self.ids) or not self.job.opening

    @property
    def late(self) -> bool:
        """Whether its time is up."""
        limit = self.job.deadline_s
        return limit is not None and time.monotonic() - self._began > limit

    def begin(self) -> None:
        """It has a row now: what is waited for from here on is the model."""
        self._started = time.monotonic()

    def consumed(self, count: int, routes: Tensor | None) -> None:
        """The row has consumed the first `count` ids of `todo`, which went to these experts."""
        del self.todo[:count]
        if routes is not None:
            self._routes.append(experts_of(routes))

    def known(self, routes: NDArray[np.int16] | None) -> None:
        """The experts of ids whose keys and values were there already."""
        if routes is not None:
            self._routes.append(routes)

    def routes(self) -> NDArray[np.int16] | None:
        """`[consumed ids, MoE layers, k]`, None without experts."""
        return np.concatenate(self._routes) if self._routes else None

    def again(self) -> None:
        """Its keys and values are of no use any more: all its ids are to be consumed again."""
        self.todo = [*self.job.ids, *self.ids]
        self._routes.clear()
        self.mixed = False

    def open(self, logits: Tensor, version: int) -> None:
        """Take up the opening; `logits` `[opening, vocabulary]` are those before each of its ids."""
        opening = self.job.opening
        found = logprobs_of(logits.cpu(), torch.tensor(opening), self.job.sampling.temperature)
        for id, logprob in zip(opening, found, strict=True):
            self._add(id, logprob, version)

    def draw(self, logits: Tensor, version: int) -> None:
        """Draw the next id from `logits` `[vocabulary]`."""
        allowed = self._allowed(len(logits))
        id, logprob = draw(logits.cpu(), self.job.sampling, self._generator, allowed)
        self._add(id, logprob, version)
        self.todo.append(id)

    def fail(self, error: EngineError) -> None:
        """Whoever waits gets this instead of a completion."""
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)

    def end(self) -> None:
        """Whoever waits gets the completion."""
        if self.future.set_running_or_notify_cancel():
            self.future.set_result(self._completion())

    def _completion(self) -> Completion:
        assert self.finish is not None
        routes = self.routes()
        length = len(self.job.ids) + len(self.ids) - 1
        return Completion(
            ids=self.ids,
            logprobs=self._logprobs,
            versions=self._versions,
            finish_reason=self.finish,
            routes=None if routes is None else routes[:length],
            cached=self.cached,
            constrained=self._constrained,
            first_token_s=self._first_s,
            opening=len(self.job.opening) if self.ids else 0,
        )

    def _allowed(self, vocabulary: int) -> Tensor | None:
        mask = self.job.constraint.allowed() if self.job.constraint else None
        if mask is None:
            return None
        self._constrained = True
        # A model's output is often padded beyond its tokenizer's vocabulary: the rest is never allowed.
        allowed = torch.zeros(vocabulary, dtype=torch.bool)
        allowed[: len(mask)] = torch.as_tensor(mask[:vocabulary], dtype=torch.bool)
        return allowed

    def _add(self, id: int, logprob: float, version: int) -> None:
        if self._first_s is None:
            self._first_s = time.monotonic() - self._started
        self.ids.append(id)
        self._logprobs.append(logprob)
        self._versions.append(version)
        if self.job.constraint:
            self.job.constraint.accept(id)
        stop = self._on_token(id, logprob) if self._on_token else False
        if id in self.job.sampling.eos_ids:
            self.finish = "eos"
        elif stop:
            self.finish = "stop"
        elif len(self.ids) >= self.job.sampling.max_tokens:
            self.finish = "length"


def experts_of(routes: Tensor) -> NDArray[np.int16]:
    """As they are kept."""
    return routes.to(torch.int16).cpu().numpy()
