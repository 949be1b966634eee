"""Output of a command of any size: bounded in memory, clean for a reader, whole on disk up to a cap."""

import codecs
import re
from collections import deque
from pathlib import Path
from typing import Final

from tools.spool import Spool

_ESCAPES: Final = re.compile(
    "\x1b(?:"
    "\\[[0-?]*[ -/]*[@-~]"  # control sequences: colours, cursor, bracketed paste
    "|[\\]PX^_][^\x07\x1b]{0,4096}(?:\x07|\x1b\\\\)"  # titles, links and other strings
    "|[ -/]*[0-OQ-WYZ\\\\`-~]"  # two- and three-character escapes
    ")"
)
_UNFINISHED: Final = re.compile("\x1b(?:\\[[0-?]*[ -/]*|[\\]PX^_][^\x07\x1b]{0,4096}\x1b?|[ -/]*)?\\Z")
_OVERSTRUCK: Final = re.compile("[^\x08\n]\x08")
_CONTROL: Final = re.compile("[\ufffd\x00-\x08\x0b-\x1f\x7f-\x9f]")
_NOISE: Final = re.compile("(?:[\ufffd\x00-\x08\x0b-\x1f\x7f-\x9f].?){3,}")
"""Where at most every second character is text, nothing is."""
_PICTURES: Final = {
    **{code: 0x2400 + code for code in range(32) if code not in (7, 9, 10)},
    7: None,
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}
_LINE: Final = 16 * 1024
"""An unfinished line is held back until it is this long."""
_SLICE: Final = 32 * 1024
_TAIL_FACTOR: Final = 4


class Cleaner:
    """Turns bytes as they come into the text a reader would have been left with.

    UTF-8 may be split anywhere; escape sequences go; of a line redrawn with carriage returns the last
    drawing stays; single control characters become visible, binary runs one replacement character. Line
    feeds are never lost.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def feed(self, data: bytes, final: bool = False) -> str:
        """Clean text of all finished lines (of an unfinished one only when it is long, or at the end)."""
        text = self._held + self._decoder.decode(data, final)
        if final:
            self._held = ""
            return clean(text)
        cut = text.rfind("\n") + 1
        held = text[cut:]
        if "\r" in held:
            held = _ESCAPES.sub("", held)
            unfinished = _UNFINISHED.search(held)
            drawn = held[: unfinished.start()] if unfinished else held
            redrawn = _last_drawing(drawn) + ("\r" if drawn.endswith("\r") else "")
            held = redrawn + held[len(drawn) :]
        if len(held) > _LINE:
            unfinished = _UNFINISHED.search(held, len(held) - 8192)
            flushed = held[: unfinished.start()] if unfinished else held
            self._held = held[len(flushed) :]
            return clean(text[:cut] + flushed)
        self._held = held
        return clean(text[:cut])

    def rest(self, data: bytes = b"") -> str:
        """Clean text of `data` and what is held back, as if it were the end; nothing changes by asking."""
        ahead = Cleaner()
        ahead._held = self._held
        ahead._decoder.setstate(self._decoder.getstate())
        return ahead.feed(data, final=True)


def clean(text: str) -> str:
    """Text without what only a terminal would understand."""
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    if "\r" in text:
        text = "\n".join(_last_drawing(line) for line in text.split("\n"))
    while "\x08" in text:
        shorter = _OVERSTRUCK.sub("", text)
        if shorter == text:
            text = text.replace("\x08", "")
        else:
            text = shorter
    if _CONTROL.search(text):
        text = _NOISE.sub("\ufffd", text).translate(_PICTURES)
    return text


def _last_drawing(line: str) -> str:
    for part in reversed(line.split("\r")):
        if part:
            return part
    return ""


class Output:
    """What a command printed, seen from both ends.

    `limit` bounds the text for a reader, in characters; `file` is where the whole lies once that text
    leaves something out (it may be read while it grows), `shown_as` its name for that reader.
    """

    def __init__(
        self, file: Path, limit: int = 30_000, shown_as: str | None = None, at_once: bool = False
    ) -> None:
        self.bytes = 0
        self.lines = 0
        self.spool = Spool(file, shown_as, at_once)
        self._half = max(limit // 2, 200)
        self._head: list[str] = []
        self._room = self._half
        self._over = ""
        self._cleaner = Cleaner()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._dropped = False

    def feed(self, data: bytes) -> str:
        """Add output. Returns clean text for someone who watches, until the head is full; then ""."""
        self.bytes += len(data)
        self.lines += data.count(b"\n")
        self.spool.write(data)
        shown: list[str] = []
        start = 0
        while self._room and start < len(data):
            shown.append(self._fill(self._cleaner.feed(data[start : start + _SLICE])))
            start += _SLICE
        if start < len(data):
            self._keep(data[start:] if start else data)
        return "".join(shown)

    @property
    def full(self) -> bool:
        """Whether the first half of the text is complete."""
        return self._room == 0

    def _fill(self, text: str) -> str:
        head, self._over = text[: self._room], text[self._room :]
        self._head.append(head)
        self._room -= len(head)
        return head

    def _keep(self, data: bytes) -> None:
        self._tail.append(data)
        self._tail_bytes += len(data)
        while self._tail_bytes - len(self._tail[0]) >= _TAIL_FACTOR * self._half:
            self._tail_bytes -= len(self._tail.popleft())
            self._dropped = True

    def last_line(self) -> str:
        """The newest text, to show that a command with a lot of output is still alive."""
        recent = self._tail[-1][-400:] if self._tail else b""
        lines = clean(recent.decode("utf-8", "replace")).rstrip().rsplit("\n", 1)
        return lines[-1][-160:]

    def text(self) -> tuple[str, bool]:
        """The text for a reader so far, and whether something was left out."""
        if self._dropped:
            # A cut may fall inside a character or an escape; four times more than is shown was kept.
            rest = Cleaner().rest(b"".join(self._tail))
        else:
            rest = self._over + self._cleaner.rest(b"".join(self._tail))
        head = "".join(self._head)
        if not self._dropped and len(rest) <= self._half + self._room:
            return head + rest, False
        if self._room:
            head, rest = head + rest[: self._room], rest[self._room :]
        head, tail = _to_line_end(head), _from_line_start(rest[-self._half :])
        lines = max(self.lines - head.count("\n") - tail.count("\n"), 0)
        hidden = max(self.bytes - len(head.encode()) - len(tail.encode()), 0)
        where = self.spool.describe()
        between = "" if head.endswith("\n") else "\n"
        return f"{head}{between}[… {lines:,} lines, {hidden:,} bytes left out; {where} …]\n{tail}", True


def _to_line_end(text: str) -> str:
    cut = text.rfind("\n") + 1
    return text[:cut] if cut > len(text) * 3 // 4 else text


def _from_line_start(text: str) -> str:
    cut = text.find("\n") + 1
    return text[cut:] if 0 < cut < len(text) // 4 else text
