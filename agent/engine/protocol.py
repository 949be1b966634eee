"""What an engine that owns its tokens can do. Everything here is token ids; text is not its business."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Capability = Literal[
    "logprobs", "versions", "routes", "prefix_cache", "constraint", "score", "pause", "load", "delta"
]

Finish = Literal["eos", "stop", "length", "deadline", "aborted"]
"""`eos`: an end token came (it is the last id). `stop`: `on_token` asked for it. `length`: no room left.
`deadline`: the job's time was up. `aborted`: `pause("abort")` ended it; what was drawn is there."""

PauseMode = Literal["keep", "wait", "abort"]
"""What becomes of running generations: they stand still between two tokens and go on after `resume`; they
are finished first; they end now with what they have."""

CacheMode = Literal["keep", "recompute"]
"""After new weights came: running generations go on from the old weights' keys and values, or these are
computed anew from their ids before the next token."""


class EngineError(Exception):
    """The engine could not do what was asked; the message says why and what to do."""


class EngineBusy(EngineError):
    """Too many requests wait already; try again later."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How ids are drawn. `temperature` 0 is greedy. `eos_ids` end a completion and belong to it."""

    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 512
    seed: int | None = None
    eos_ids: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Completion:
    """The drawn ids; `logprobs` and `versions` have their length.

    A log-prob is log softmax(logits / temperature) of the id over the whole vocabulary, in fp32; at
    temperature 0 it is taken at temperature 1. Neither `top_p` nor a constraint renormalises it: it is
    always the policy's own. `routes` `[prompt + completion - 1, MoE layers, k]` (int16) are the experts each
    consumed id was sent to, -1 where that is not known, None for models
    without experts. `cached` counts the prompt ids
    whose keys and values were reused instead of computed. `first_token_s` is the time from the start of
    the work to the first id.
    """

    ids: list[int]
    logprobs: list[float]
    versions: list[int]
    finish_reason: Finish
    routes: NDArray[np.int16] | None = None
    cached: int = 0
    constrained: bool = False
    first_token_s: float | None = None
    opening: int = 0
    """How many of the first ids were given by the caller rather than drawn."""


class Constraint(Protocol):
    """Restricts what may be drawn, id by id. Lives in the engine's thread."""

    def allowed(self) -> Sequence[bool] | None:
        """Which ids may come next (a mask over the vocabulary), or None for any."""
        ...

    def accept(self, id: int) -> None:
        """Take note of the id that came."""
        ...


OnToken = Callable[[int, float], bool]
"""Called in the engine's thread with each id and its log-prob; cheap. True ends the completion."""


@dataclass(frozen=True, slots=True)
class Job:
    """One generation to be made from `ids`.

    `key` names whose keys and values these are (a session), so that its next job finds them. `opening`
    ids are appended as if drawn, in one pass, and their log-probs recorded.
    """

    key: str
    ids: Sequence[int]
    sampling: Sampling = field(default_factory=Sampling)
    opening: Sequence[int] = ()
    constraint: Constraint | None = None
    deadline_s: float | None = None
    """Seconds from its arrival after which the job ends with what it has."""
    lasting: int = 0
    """How many of the first ids other jobs begin with too, today and after the next start."""


class Engine(Protocol):
    """Generates from token ids. Cancelling the awaiting task frees the engine within one token."""

    @property
    def version(self) -> int: ...

    @property
    def capabilities(self) -> frozenset[Capability]: ...

    async def generate(self, job: Job, on_token: OnToken | None = None) -> Completion:
        """Raises `EngineBusy` when too many wait, `EngineError` when the job cannot be done."""
        ...

    async def score(
        self, key: str, ids: Sequence[int], continuations: Sequence[Sequence[int]]
    ) -> list[float]:
        """The summed log-prob of each continuation after `ids`, at temperature 1."""
        ...

    async def pause(self, mode: PauseMode = "keep") -> None:
        """Return when no forward pass runs and none will begin before `resume`."""
        ...

    async def resume(self) -> None: ...

    async def load(self, path: Path, version: int, cache: CacheMode = "recompute") -> None:
        """Replace the weights between two tokens; running generations go on and record the new version.

        `path` is a Hugging Face folder, or a policy version's folder that holds a delta to the version that
        is loaded now (`agent.engine.policies`). Finished requests' keys and values are not used again.

        Raises:
            EngineError: it cannot be loaded; the old weights stay.
        """
        ...

    async def close(self) -> None: ...
