"""The engine's thread: jobs come and go between two tokens, and share every pass that they can share.

One round is: what was asked for between tokens (new weights, a pause), jobs that ended otherwise, jobs that
get a row, a piece of a prompt (or several short ones), and one id for every row whose prompt is consumed. So
a long prompt slows the others down but never stops them, and nothing waits for the slowest.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import psutil
import torch

from agent.engine.disk_prefixes import DiskPrefixes
from agent.engine.network import Network, open_network
from agent.engine.prefixes import PrefixCache
from agent.engine.protocol import CacheMode, EngineError, Finish, PauseMode
from agent.engine.published import Published, published
from agent.engine.ragged import RaggedRows
from agent.engine.rows import Row, Rows
from agent.engine.solo import SoloRows
from agent.engine.trie import Trie
from agent.engine.work import Work, experts_of

T = TypeVar("T")

FAILURES: Final = (EngineError, RuntimeError, ValueError, TypeError, LookupError, OSError, MemoryError)
"""What can go wrong in a model's code."""
PREFILL: Final = 512
"""Prompt ids per round: a cancelled job frees the engine, and the others go on, after so many."""
MANY: Final = 4
"""Rows in one pass from which on several threads are worth their processor time."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """`threads` work on a prompt (None = physical cores, at most 4), `decode_threads` on each new token of a
    few rows: reading the weights bounds that, and a second thread costs its processor time for nothing.

    `rows` is how many jobs share a pass, `waiting` how many more may stand in line; `cache_bytes` what the
    keys and values of finished jobs may hold. `device` is a PyTorch device. In the folder `lasting`, if there
    is one, the beginnings that jobs call lasting are kept from one start to the next.
    """

    threads: int | None = None
    decode_threads: int = 1
    cache_bytes: int = 384 << 20
    rows: int = 16
    waiting: int = 32
    device: str = "cpu"
    lasting: Path | None = None

    def prefill_threads(self) -> int:
        return self.threads or max(1, min(psutil.cpu_count(logical=False) or 1, 4))


class Scheduler:
    """Owns the weights and everything computed from them. `submit` and `between` are for other threads."""

    def __init__(self, path: Path, version: int, settings: EngineSettings) -> None:
        self.path, self.version, self.settings = path, version, settings
        self.network: Network | None = None
        self._rows: Rows | None = None
        self._published: Published | None = None
        """What is loaded, as it was read from a policy's folder: the next delta is made against it."""
        self._prefixes = PrefixCache(settings.cache_bytes)
        self._disk: DiskPrefixes | None = None
        self._inbox: queue.SimpleQueue[Work | Callable[[], None] | None] = queue.SimpleQueue()
        self._waiting: deque[Work] = deque()
        self._running: list[Work] = []
        self._paused = False
        self._drained: Future[None] | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def submit(self, work: Work) -> None:
        """Take a job on; its future ends with its completion."""
        self._put(work)

    def between(self, act: Callable[[], T]) -> "Future[T]":
        """Have something done in the engine's thread, between two tokens."""
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(act())
            except FAILURES as error:
                future.set_exception(error)
            finally:
                if not future.done():
                    future.set_exception(EngineError("The engine broke down; open the model again."))

        self._put(run)
        return future

    def wake(self) -> None:
        """Look at the flags of the jobs."""
        self._put(lambda: None)

    def stop(self) -> None:
        """End the thread; everything under way ends with an error. Blocks for at most one pass."""
        self._inbox.put(None)
        self._thread.join()

    def _put(self, item: Work | Callable[[], None]) -> None:
        if not self._thread.is_alive():
            raise EngineError("The engine has ended; open the model again.")
        self._inbox.put(item)

    # From here on: the engine's thread.

    def load(self, path: Path, version: int, cache: CacheMode) -> None:
        """Replace the weights. Raises `EngineError`, and the old ones stay."""
        if self._running and self.network is not None and version < self.version:
            raise EngineError(
                f"Version {version} is older than {self.version}, which running jobs have tokens of."
            )
        torch.set_num_threads(self.settings.prefill_threads())
        version_on_disk = published(path, self._published)
        network = open_network(path, torch.device(self.settings.device), version_on_disk)
        if self._running and self.network is not None:
            self._exchange(network, cache)
        else:
            self.network, self._rows = network, RaggedRows(network) if network.ragged else SoloRows(network)
        self.path, self.version, self._published = path, version, version_on_disk
        self._prefixes.clear()
        folder = self.settings.lasting
        self._disk = None
        if folder is not None and network.ragged:
            self._disk = DiskPrefixes(folder, network.model.state_dict())

    def _exchange(self, network: Network, cache: CacheMode) -> None:
        """New weights under running jobs."""
        assert self.network is not None and self._rows is not None
        if _shapes(network) != _shapes(self.network):
            raise EngineError(
                "The new weights are of a model with other sizes, and jobs are running: end them."
            )
        for work in self._running:
            if cache == "keep":
                work.mixed = True
            elif work.row is not None:
                self._rows.close(work.row)
                work.row = self._rows.open((), None)
                work.again()
        self.network = self._rows.network = network

    def pause(self, mode: PauseMode) -> "Future[None]":
        """The future ends when nothing runs any more."""
        done: Future[None] = Future()
        if mode == "abort":
            for work in list(self._running):
                self._retire(work, "aborted")
        if mode == "wait" and self._running:
            self._drained = done
        else:
            self._paused = True
            done.set_result(None)
        return done

    def resume(self) -> None:
        self._paused = False
        if self._drained is not None:
            self._drained.set_result(None)
            self._drained = None

    @torch.inference_mode()
    def score(self, key: str, ids: list[int], trie: Trie) -> list[float]:
        """The summed log-probs of a trie's branches after `ids`."""
        rows = self._ready()
        torch.set_num_threads(self.settings.prefill_threads())
        row, known, _ = self._opened(key, ids)
        routes, logits = [] if known is None else [known], torch.empty(0)
        try:
            for start in range(len(row.ids), len(ids), PREFILL):
                step = rows.feed(row, ids[start : start + PREFILL])
                logits = step.logits
                routes += [] if step.routes is None else [experts_of(step.routes)]
            if trie.ids:
                logits = torch.cat([logits, rows.branch(row, trie)])
            steps = torch.log_softmax(logits.float(), dim=-1)
        finally:
            self._keep(key, row, np.concatenate(routes) if routes else None)
        return trie.sums([float(steps[up + 1, id]) for id, up in zip(trie.ids, trie.parents, strict=True)])

    def _run(self) -> None:
        try:
            self._serve()
        finally:
            self._give_up()

    def _serve(self) -> None:
        while True:
            idle = self._paused or not (self._running or self._waiting)
            item: Any
            try:
                item = self._inbox.get(block=idle, timeout=self._patience() if idle else None)
            except queue.Empty:
                item = self._round
            if item is None:
                return
            if isinstance(item, Work):
                self._waiting.append(item)
            else:
                item()

    def _patience(self) -> float | None:
        """Seconds until a flag or a deadline must be looked at again while everything stands still."""
        return 0.05 if self._running or self._waiting else None

    def _round(self) -> None:
        self._end_early()
        if self._paused:
            return
        self._admit()
        spent = 0
        for work in [work for work in self._running if not _is_ready(work)]:
            if spent == 0 or spent + len(work.todo) <= PREFILL:
                spent += min(len(work.todo), PREFILL)
                self._attempt([work], lambda work=work: self._fill(work))
        ready = [work for work in self._running if _is_ready(work)]
        if ready:
            self._attempt(ready, lambda: self._advance(ready))
        if self._drained is not None and not self._running:
            self._paused = True
            self._drained.set_result(None)
            self._drained = None

    def _attempt(self, works: list[Work], act: Callable[[], None]) -> None:
        """What goes wrong with a pass is the end of its jobs, not of the engine."""
        try:
            with torch.inference_mode():
                act()
        except FAILURES as error:
            failed = error if isinstance(error, EngineError) else EngineError(f"The model failed: {error}")
            for work in works:
                self._drop(work)
                work.fail(failed)

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self.settings.rows and self._drained is None:
            work = self._waiting.popleft()
            self._running.append(work)
            self._attempt([work], lambda work=work: self._start(work))

    def _start(self, work: Work) -> None:
        if not work.job.ids:
            raise EngineError("There is nothing to continue: the prompt has no tokens.")
        self._ready()
        work.begin()
        work.row, routes, work.cached = self._opened(work.job.key, work.todo, work.job.lasting)
        work.consumed(work.cached, None)
        work.known(routes)

    def _opened(self, key: str, ids: list[int], lasting: int = 0) -> tuple[Row, Any, int]:
        """A row that holds what is known of `ids`, its routes, and how many ids that are."""
        rows, known = self._ready(), self._prefixes.take(key, ids, self.version)
        lasting = min(lasting, len(ids) - 1)
        if self._disk is not None and lasting > (0 if known is None else len(known.ids)):
            known = self._disk.take(ids[:lasting], self.version) or known
        if known is None:
            return rows.open((), None), None, 0
        return rows.open(known.ids.tolist(), known.kept), known.routes, len(known.ids)

    def _make_last(self, work: Work, row: Row) -> None:
        """Keep a lasting beginning, the first time that it was computed."""
        rows, lasting = self._ready(), min(work.job.lasting, len(work.job.ids) - 1)
        if self._disk is None or not isinstance(rows, RaggedRows) or work.mixed:
            return
        if 0 < lasting <= len(row.ids) and self._disk.lacks(row.ids[:lasting]):
            routes = work.routes()
            self._disk.put(
                row.ids[:lasting], rows.peek(row, lasting), None if routes is None else routes[:lasting]
            )

    def _fill(self, work: Work) -> None:
        """A piece of a prompt; behind its last one the opening, and the first id."""
        rows, row = self._ready(), work.row
        assert row is not None
        torch.set_num_threads(self.settings.prefill_threads())
        piece = work.todo[:PREFILL]
        step = rows.feed(row, piece)
        work.consumed(len(piece), step.routes)
        if work.todo:
            self._running.remove(work)  # the next piece is another's
            self._running.append(work)
            return
        self._make_last(work, row)
        logits = step.logits[-1:]
        if not work.opened:
            opening = rows.feed(row, work.job.opening, every=True)
            work.consumed(0, opening.routes)
            before = torch.cat([logits, opening.logits[:-1]])
            work.open(before, self.version)
            logits = opening.logits[-1:]
        if work.finish is None:
            self._draw(work, logits[0])
        else:
            self._retire(work, work.finish)

    def _advance(self, works: list[Work]) -> None:
        """One id for each."""
        few = len(works) < MANY
        torch.set_num_threads(self.settings.decode_threads if few else self.settings.prefill_threads())
        held = [work.row for work in works if work.row is not None]
        step = self._ready().step(held, [work.todo[0] for work in works])
        for index, work in enumerate(works):
            work.consumed(1, None if step.routes is None else step.routes[index : index + 1])
            # What goes wrong with one draw (its listener, its constraint) ends that job alone.
            self._attempt([work], lambda work=work, index=index: self._draw(work, step.logits[index]))

    def _draw(self, work: Work, logits: torch.Tensor) -> None:
        work.draw(logits, self.version)
        if work.finish is not None:
            self._retire(work, work.finish)

    def _end_early(self) -> None:
        for work in [*self._running, *self._waiting]:
            if work.stop.is_set():
                self._drop(work)
                work.future.cancel()
            elif work.late:
                self._retire(work, "deadline")

    def _retire(self, work: Work, finish: Finish) -> None:
        work.finish = finish
        self._drop(work)
        work.end()

    def _drop(self, work: Work) -> None:
        """Take a job out, and keep what was computed for it."""
        if work in self._waiting:
            self._waiting.remove(work)
        if work in self._running:
            self._running.remove(work)
        if work.row is not None:
            row, work.row = work.row, None
            if work.mixed:  # partly of older weights
                self._ready().close(row)
            else:
                self._keep(work.job.key, row, work.routes())

    def _keep(self, key: str, row: Row, routes: Any) -> None:
        kept = self._ready().close(row)
        self._prefixes.put(key, row.ids, kept, routes, self.version)

    def _ready(self) -> Rows:
        if self._rows is None:
            self.load(self.path, self.version, "recompute")
        assert self._rows is not None
        return self._rows

    def _give_up(self) -> None:
        for work in [*self._running, *self._waiting]:
            work.fail(EngineError("The engine was closed before this request was done."))
        self._running.clear()
        self._waiting.clear()
        if self._drained is not None:
            self._drained.set_result(None)
        self._prefixes.clear()
        self.network = self._rows = None


def _is_ready(work: Work) -> bool:
    """Whether all of it but the last id drawn is consumed."""
    return bool(work.ids) and len(work.todo) == 1


def _shapes(network: Network) -> dict[str, Any]:
    return {name: tensor.shape for name, tensor in network.model.state_dict().items()}
