"""Cuts lines that are too long to wait for; the same way whether they come at once or little by little."""

from collections.abc import Iterator
from typing import Final

LONGEST: Final = 16 * 1024
"""Bytes of a line that are looked at together."""


def cut(data: bytes, at: int) -> int:
    """Where the piece of a long line ends that begins at `at`. More than `LONGEST` bytes of it follow."""
    half = at + LONGEST // 2
    window = data[half : at + LONGEST]
    best = max(window.rfind(mark) for mark in (b",", b";", b"}", b">"))
    if best < 0:
        best = max(window.rfind(mark) for mark in (b" ", b"\t", b"&"))
    if best >= 0:
        return half + best + 1
    end = at + LONGEST
    while data[end] & 0xC0 == 0x80:  # never within a character
        end -= 1
    return end


def pieces(data: bytes) -> Iterator[tuple[int, int]]:
    """What to look at together: runs of ordinary lines, and the pieces of long ones."""
    begin = at = 0
    size = len(data)
    while size - at > LONGEST:
        # The last line feed that is near enough: everything up to it has no long line, if there is one.
        feed = data.rfind(b"\n", at, at + LONGEST + 1)
        if feed >= 0:
            at = feed + 1
            continue
        if begin < at:
            yield begin, at
        begin, at = at, cut(data, at)
        yield begin, at
        begin = at
        stop = data.find(b"\n", at, at + LONGEST + 1)
        if stop >= 0:  # the rest of the long line, alone
            yield at, stop + 1
            begin = at = stop + 1
    if begin < size:
        yield begin, size
