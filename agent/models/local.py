"""The embedded default model, and any Hugging Face folder: sampled in this process, token for token."""

import asyncio
import io
import json
import logging
import os
from collections.abc import AsyncGenerator, Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from agent.events import TokenTrace, Usage
from agent.models.client import (
    Chunk,
    Completion,
    ContextOverflow,
    Delta,
    ModelError,
    Price,
    Request,
    Sampling,
)
from agent.models.settings import ModelSettings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from agent.engine.protocol import CacheMode
    from agent.models.opened import OpenedModel
    from agent.rendering.conversation import Prompt

log = logging.getLogger(__name__)

MODULES: Final = ("torch", "transformers", "accelerate", "gguf", "safetensors", "tokenizers", "llguidance")
WINDOW: Final = 8192
"""Of the embedded model."""
LEAST_OUTPUT: Final = 64
"""Tokens that must be left for the answer; with fewer, the context is said to overflow."""
MOST_OUTPUT: Final = 320
"""Of an answer, where neither the request nor the settings say. Small models ramble."""
TEMPERATURE: Final = 0.2
TOP_P: Final = 0.9


class LocalModel:
    """`local` (the embedded model) or `local:PATH`; conversations share its passes.

    The first use of the embedded model converts it into `cache_dir` (half a minute, 540 MB). `progress`
    is told, from another thread, what is being done.
    """

    def __init__(
        self,
        path: Path | None,
        cache_dir: Path,
        settings: ModelSettings | None = None,
        *,
        progress: Callable[[str], None] = log.info,
    ) -> None:
        """Loads nothing yet.

        Raises:
            ModelError: there is no model at `path`.
        """
        self._path, self._cache_dir = path, cache_dir
        self._settings = settings or ModelSettings(provider="local")
        self._progress = progress
        self.name = "local" if path is None else f"local:{path}"
        self.policy: str | None = None
        window = WINDOW if path is None else _window(path)
        self.context_window = min(self._settings.context_window or window, window)
        compact = self._settings.profile or "compact"
        self.profile: Literal["full", "compact"] = compact
        self.price: Price | None = self._settings.price
        self._opening: asyncio.Task[OpenedModel] | None = None

    async def warm(self) -> None:
        """Load the model now, so that the first answer need not wait for it.

        Raises:
            ModelError: a package is missing, or the model cannot be loaded.
        """
        opened = await self._open()
        if opened.router:
            await opened.router.warm()

    async def load(self, path: Path, version: int, cache: "CacheMode" = "recompute") -> None:
        """Go on with the weights of another folder, between two tokens of whatever is being written.

        Raises:
            ModelError: they cannot be loaded, or are of another model; the old ones stay.
        """
        from agent.engine.protocol import EngineError

        opened = await self._open()
        try:
            await opened.engine.load(path, version, cache)
        except EngineError as error:
            raise ModelError(str(error)) from error

    async def sample(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """Deltas as they are drawn, then the completion with its exact ids and log-probs.

        Raises:
            ContextOverflow: the prompt leaves no room for an answer.
            ModelError: the model cannot be loaded, or too many requests wait.
        """
        from agent.engine.protocol import EngineBusy, EngineError

        opened = await self._open()
        try:
            prompt = await asyncio.to_thread(
                opened.conversations.prompt, request.session_id, request.messages, request.tools
            )
        except ValueError as error:
            raise ModelError(f"{self.name}: {error}") from error
        sampling = self._sampling(request.sampling, len(prompt.ids))
        try:
            opening = await self._route(opened, request, sampling.max_tokens or 0)
            async for chunk in _generate(opened, request, prompt, sampling, opening):
                yield chunk
        except EngineBusy as error:
            raise ModelError(str(error), retryable=True) from error
        except EngineError as error:
            raise ModelError(str(error)) from error

    async def close(self) -> None:
        """Stop what runs and free the memory."""
        task, self._opening = self._opening, None
        if task is None:
            return
        task.cancel()
        try:
            opened = await task
        except (asyncio.CancelledError, ModelError):
            return
        await opened.engine.close()

    def _sampling(self, asked: Sampling, used: int) -> Sampling:
        """What is really used: the request's wishes, then the settings', then defaults, as room allows."""
        room = self.context_window - used
        if room < LEAST_OUTPUT:
            raise ContextOverflow(
                f"The prompt has {used} tokens and {self.name} has a window of {self.context_window},"
                f" of which {LEAST_OUTPUT} are kept for the answer. Shorten or summarise the conversation."
            )
        most = asked.max_tokens or self._settings.max_output_tokens or MOST_OUTPUT
        wished = self._settings.temperature if asked.temperature is None else asked.temperature
        return Sampling(
            temperature=TEMPERATURE if wished is None else wished,
            top_p=TOP_P if asked.top_p is None else asked.top_p,
            max_tokens=min(most, self._settings.max_output_tokens or most, room),
            seed=int.from_bytes(os.urandom(4)) if asked.seed is None else asked.seed,
            stop=asked.stop,
        )

    async def _route(self, opened: "OpenedModel", request: Request, room: int) -> list[int]:
        """The opening of the answer where the model prefers a tool to it (`agent.models.routing`)."""
        last = request.messages[-1] if request.messages else {}
        if opened.router is None or last.get("role") != "user" or request.purpose == "summary":
            return []
        from agent.rendering.chatml import content

        route = await opened.router.choose(content(last), request.tools)
        if route is None:
            return []
        ids = opened.renderer.call(route.name, route.arguments) or []
        return ids if len(ids) <= room else []

    async def _open(self) -> "OpenedModel":
        if self._opening is None or _failed(self._opening):
            self._opening = asyncio.create_task(self._load(), name="load the local model")
        return await asyncio.shield(self._opening)

    async def _load(self) -> "OpenedModel":
        if missing := [module for module in MODULES if find_spec(module) is None]:
            raise ModelError(
                f"The local model needs packages that are not installed ({', '.join(missing)}):"
                " run `etude models install`."
            )
        os.environ["HF_HUB_OFFLINE"] = "1"  # before the first import: nothing is ever fetched
        opened = await asyncio.to_thread(self._open_folder)
        from agent.engine.protocol import EngineError

        try:
            await opened.engine.start()
        except EngineError as error:
            raise ModelError(str(error)) from error
        return opened

    def _open_folder(self) -> "OpenedModel":
        """Runs in a thread: the imports alone take seconds."""
        from agent.engine.protocol import EngineError
        from agent.engine.scheduler import EngineSettings
        from agent.engine.weights import provide
        from agent.models.opened import open_folder

        try:
            folder = self._path or provide(self._cache_dir, self._progress)
            settings = EngineSettings(lasting=self._cache_dir / "prefixes")
            return open_folder(folder, routed=self._path is None, settings=settings)
        except (EngineError, OSError, ValueError) as error:
            raise ModelError(f"{self.name} cannot be loaded: {error}") from error


async def _generate(
    opened: "OpenedModel", request: Request, prompt: "Prompt", sampling: Sampling, opening: list[int]
) -> AsyncGenerator[Chunk, None]:
    from agent.engine.protocol import Job
    from agent.engine.protocol import Sampling as Drawing
    from agent.engine.repetition import is_looping
    from agent.rendering.answer import AnswerReader

    answer = AnswerReader({tool["function"]["name"] for tool in request.tools}, sampling.stop)
    characters, loop = opened.codec.reader(), asyncio.get_running_loop()
    # At most one entry for each token that fits the window, so it cannot grow beyond that.
    chunks: asyncio.Queue[list[Delta] | None] = asyncio.Queue()

    written: list[int] = []

    def on_token(id: int, logprob: float) -> bool:
        written.append(id)
        if id not in opened.renderer.end_ids and (deltas := answer.feed(characters.feed(id))):
            loop.call_soon_threadsafe(chunks.put_nowait, deltas)
        return answer.stopped or (opened.router is not None and is_looping(written))

    lasting = await asyncio.to_thread(opened.lasting, prompt, request.messages, request.tools)
    job = Job(
        key=request.session_id,
        ids=prompt.ids,
        sampling=Drawing(
            temperature=sampling.temperature or 0.0,
            top_p=1.0 if sampling.top_p is None else sampling.top_p,
            max_tokens=sampling.max_tokens or LEAST_OUTPUT,
            seed=sampling.seed,
            eos_ids=opened.renderer.end_ids,
        ),
        opening=opening,
        lasting=lasting,
        constraint=opened.constraint(
            request.tools, "tool" if request.purpose == "summary" else request.messages[-1].get("role")
        ),
    )
    task = asyncio.create_task(opened.engine.generate(job, on_token))
    task.add_done_callback(lambda _: chunks.put_nowait(None))
    try:
        while (deltas := await chunks.get()) is not None:
            for delta in deltas:
                yield delta
        drawn = await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
    for delta in answer.finish():
        yield delta
    ended = drawn.finish_reason == "eos"
    opened.conversations.answered(request.session_id, prompt, drawn.ids, ended, answer.text, answer.calls)
    yield Completion(
        text=answer.text,
        thought=answer.thought,
        calls=answer.calls,
        finish="tool_calls" if answer.calls else "length" if drawn.finish_reason == "length" else "stop",
        usage=Usage(input=len(prompt.ids), cached=drawn.cached, output=len(drawn.ids)),
        tokens=TokenTrace(
            prompt_length=len(prompt.ids),
            completion=drawn.ids,
            logprobs=drawn.logprobs,
            versions=drawn.versions,
            context=prompt.context,
        ),
        prompt_ids=prompt.ids,
        routes=None if drawn.routes is None else _saved(drawn.routes),
        grammar=drawn.constrained or drawn.opening > 0,
        sampling=sampling.record(),
    )


def _saved(routes: "NDArray[np.int16]") -> bytes:
    import numpy as np

    file = io.BytesIO()
    np.save(file, routes, allow_pickle=False)
    return file.getvalue()


def _failed(task: "asyncio.Task[OpenedModel]") -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def _window(path: Path) -> int:
    """The window that a model's configuration states."""
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(
            f"local:{path}: no model is there ({error}). Give the folder of a Hugging Face language model."
        ) from error
    text: dict[str, Any] = config.get("text_config") or config
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"):
        if isinstance(text.get(name), int):
            return text[name]
    return WINDOW
