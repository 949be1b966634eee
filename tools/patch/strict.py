"""A diff applied where its numbers say, to the very lines it names: exact in every byte, endings included."""

from collections.abc import Sequence

from tools.applying import Applied, Placed, require_writable
from tools.diff import Span
from tools.encodings import Encoding, sniff
from tools.patch.section import Chunk
from tools.text import split_lines

MARK = "\ufeff"


def strictly(data: bytes, chunks: Sequence[Chunk]) -> Applied | None:
    """The patched content; None where a chunk has no number, or its lines do not stand there exactly.

    Raises:
        Binary: the content is no text.
        Refused, Unencodable: the new lines must not or cannot be written.
    """
    if not chunks or any(chunk.line is None or chunk.anchors for chunk in chunks):
        return None
    encoding, body = sniff(data)
    if encoding.bom:
        body = MARK + body
    lines = split_lines(body)
    pieces: list[str] = []
    spans: list[Span] = []
    placed: list[Placed] = []
    at = start = size = 0
    for number, chunk in enumerate(chunks, 1):
        assert chunk.line is not None
        # A hunk without old lines is numbered by the line that it follows.
        first = chunk.line - 1 if chunk.old else chunk.line
        if first < at or lines[first : first + len(chunk.old)] != chunk.old or first > len(lines):
            return None
        if pieces and first > at and not lines[at - 1].endswith("\n"):
            return None
        kept = "".join(lines[at:first])
        old, new = "".join(chunk.old), "".join(chunk.new)
        pieces += (kept, new)
        start, size = start + len(kept), size + len(kept)
        spans.append(Span(start, start + len(old), size, size + len(new)))
        start, size = start + len(old), size + len(new)
        placed.append(Placed(number, "exact", first + 1, max(first + len(chunk.old), first + 1)))
        at = first + len(chunk.old)
        require_writable(old, new, old)
        known = set(old)
        encoding.check("".join(character for character in new if character not in known | {MARK}))
    pieces.append("".join(lines[at:]))
    if any(piece and not piece.endswith("\n") for piece in _before_others(pieces)):
        return None
    after = "".join(pieces)
    if after == body:
        return None
    return Applied(_encoded(encoding, after), tuple(placed), encoding.name, body, after, tuple(spans))


def _before_others(pieces: list[str]) -> list[str]:
    """The pieces that something follows: each has to end a line."""
    filled = [piece for piece in pieces if piece]
    return filled[:-1]


def _encoded(encoding: Encoding, text: str) -> bytes:
    if encoding.bom and text.startswith(MARK):
        return encoding.bom + encoding.encode_base(text[len(MARK) :])
    return encoding.encode_base(text)
