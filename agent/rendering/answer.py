"""Reads an answer as it comes: visible text, thoughts, and the tool calls hidden in it."""

from collections.abc import Iterable, Set
from typing import Final, Literal

from agent.events import Call
from agent.models.client import Delta
from agent.rendering import calls

_OPENERS: Final = {"<tool_call>": "call", "<think>": "thought", "```json": "fence"}
_CLOSERS: Final = {"call": "</tool_call>", "thought": "</think>", "fence": "\n```"}


class AnswerReader:
    """Text goes in, deltas come out; nothing that may yet turn out to be markup is let through.

    The text of all deltas together is `text` and `thought`. White space around the text and before a
    call is dropped.
    """

    def __init__(self, known_tools: Set[str], stop: Iterable[str] = ()) -> None:
        self.text = ""
        self.thought = ""
        self.calls: list[Call] = []
        self.stopped = False
        """A stop string came; what follows it is not part of the answer."""
        self._known, self._stop = known_tools, tuple(filter(None, stop))
        self._mode: Literal["text", "call", "thought", "fence"] = "text"
        self._pending = ""
        self._blank = ""

    def feed(self, text: str) -> list[Delta]:
        if self.stopped:
            return []
        self._pending += text
        return self._read(last=False)

    def finish(self) -> list[Delta]:
        """What was held back. An unclosed call is a call, malformed as it may be."""
        deltas = self._read(last=True)
        if self._mode == "call" or (self._mode == "fence" and calls.fenced(self._pending, self._known)):
            self._close(self._mode, self._pending)
        elif self._mode == "fence":
            deltas += self._show("```json" + self._pending)
        self._pending = ""
        return deltas

    def _read(self, last: bool) -> list[Delta]:
        deltas: list[Delta] = []
        while True:
            if self._mode == "text":
                marks = [*_OPENERS, *self._stop]
                at, mark = min(
                    ((at, mark) for mark in marks if (at := self._pending.find(mark)) >= 0),
                    default=(-1, ""),
                )
                if at < 0:
                    keep = 0 if last else overlap(self._pending, marks)
                    deltas += self._show(self._take(len(self._pending) - keep))
                    return deltas
                deltas += self._show(self._take(at))
                self._take(len(mark))
                if mark in self._stop:
                    self.stopped, self._pending = True, ""
                    return deltas
                self._mode = _OPENERS[mark]  # type: ignore[assignment]  # the values are the modes
            closer = _CLOSERS[self._mode]
            at = self._pending.find(closer)
            if at < 0:
                if self._mode == "thought":
                    keep = 0 if last else overlap(self._pending, [closer])
                    deltas += self._think(self._take(len(self._pending) - keep))
                return deltas
            body = self._take(at)
            self._take(len(closer))
            mode, self._mode = self._mode, "text"
            if mode == "thought":
                deltas += self._think(body)
            elif not self._close(mode, body):
                deltas += self._show(f"```json{body}{closer}")

    def _close(self, mode: str, body: str) -> bool:
        call = calls.tagged(body) if mode == "call" else calls.fenced(body, self._known)
        if call is None:
            return False
        self.calls.append(call)
        return True

    def _take(self, count: int) -> str:
        taken, self._pending = self._pending[:count], self._pending[count:]
        return taken

    def _show(self, text: str) -> list[Delta]:
        text = self._blank + text if self.text else text.lstrip()
        shown = text.rstrip()
        self._blank = text[len(shown) :]
        if not shown:
            return []
        self.text += shown
        return [Delta("text", shown)]

    def _think(self, text: str) -> list[Delta]:
        if not self.thought:
            text = text.lstrip()
        self.thought += text
        return [Delta("thought", text)] if text else []


def overlap(text: str, marks: Iterable[str]) -> int:
    """How many last characters of `text` may be the beginning of one of `marks`."""
    return max(
        (size for mark in marks for size in range(1, len(mark)) if text.endswith(mark[:size])), default=0
    )
