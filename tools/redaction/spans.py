"""Where a secret lies in a text, and what becomes of places that overlap."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Bytes `start` (inclusive) to `end` (exclusive) of a text.

    `rank` decides the kind where places overlap: the lowest knows best. `known`: the value itself tells it
    from ordinary text, so it is replaced wherever it stands.
    """

    start: int
    end: int
    kind: str
    rank: int = 5
    known: bool = False


def merged(spans: Iterable[Span]) -> list[Span]:
    """The places in order, those that overlap as one."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda one: (one.start, -one.end)):
        if found and span.start < found[-1].end:
            last = found[-1]
            best = min(last, span, key=lambda one: one.rank)
            end, same = max(last.end, span.end), (span.start, span.end) == (last.start, last.end)
            known = last.known or span.known if same else last.known and last.end >= span.end
            found[-1] = Span(last.start, end, best.kind, best.rank, known)
        else:
            found.append(span)
    return found
