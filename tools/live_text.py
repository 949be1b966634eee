"""Output for someone who watches: coalesced, clean, and bounded however much a command prints."""

import asyncio
from collections.abc import Callable
from typing import Final

from tools.output import Output

_EVERY_S: Final = 0.03
_SUMMARY_S: Final = 1.0


class LiveText:
    """Feeds an `Output` and passes its clean text on every 30 ms; once the text's first half is full, one
    line a second says how far the command is."""

    def __init__(self, output: Output, progress: Callable[[str], None]) -> None:
        self.output = output
        self._progress = progress
        self._loop = asyncio.get_running_loop()
        self._waiting: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._sums = False

    def feed(self, data: bytes) -> None:
        text = self.output.feed(data)
        if text:
            self._waiting.append(text)
            self._start(_EVERY_S)
        elif self.output.full:
            self._sums = True
            self._start(_SUMMARY_S)

    def _start(self, delay: float) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(delay, self._flush)

    def _flush(self) -> None:
        self._timer = None
        if self._waiting:
            text = "".join(self._waiting)
            self._waiting.clear()
            self._progress(text)
        elif self._sums:
            size = self.output.bytes / 1e6
            self._progress(f"[… {size:.1f} MB so far] {self.output.last_line()}\n")
        self._sums = False

    def close(self) -> None:
        """Pass on what is left."""
        self._sums = False
        if self._timer is not None:
            self._timer.cancel()
        self._flush()
