"""How a definition is shown: its head on one line, and the first line of what documents it."""

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tree_sitter import Node

DOC: Final = 160
LOOKED_ABOVE: Final = 200
"""Lines of comment above a definition that are looked through for its beginning."""

_QUOTES: Final = re.compile(rb"""^[A-Za-z]{0,2}(\"\"\"|'''|"|')""")
_LINE_COMMENT: Final = re.compile(rb"\s*(///?!?|#(?![!\[])|--+)")
_MARKS: Final = re.compile(rb"^\s*(/\*+!?|\*+/?|//+!?|#+|--+\[*)\s*|\s*\*+/\s*$")


def signature(head: bytes, limit: int) -> str:
    """A definition's text before its body, on one line, without the comments in it."""
    if b"\n" in head:
        lines = head.split(b"\n")
        head = b"\n".join(line for line in lines if not line.lstrip().startswith((b"#", b"//", b"/*", b"*")))
        head = head or lines[0]
    plain = one_line(head, limit)
    return plain.removesuffix(":") or plain


def one_line(text: bytes, limit: int) -> str:
    """Text with its white space collapsed, at most so many characters."""
    if len(text) > limit * 8:
        text = text[: limit * 8]
    plain = b" ".join(text.split()).decode("utf-8", "replace")
    if plain.endswith(("{", "=>")):
        plain = plain.rstrip("{ ").removesuffix(" =>").rstrip() or plain
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"


def doc_inside(body: "Node") -> str:
    """The first line of the string a Python body begins with."""
    first = body.named_child(0) if body.named_child_count else None
    if first is not None and first.type == "expression_statement":
        first = first.named_child(0) if first.named_child_count else None
    if first is None or first.type != "string":
        return ""
    text = first.text or b""
    quotes = _QUOTES.match(text)
    if quotes is None:
        return ""
    inner = text[quotes.end() :].removesuffix(quotes.group(1))
    return one_line(inner.lstrip().partition(b"\n")[0], DOC)


def doc_above(lines: list[bytes], row: int, attributes: tuple[str, ...]) -> str:
    """The first line of the comment directly above a row (from 0), attributes between them passed over."""
    at = row - 1
    begins = tuple(one.encode() for one in attributes)
    while begins and at >= 0 and lines[at].lstrip().startswith(begins):
        at -= 1
    if at < 0:
        return ""
    last = lines[at].strip()
    first = at
    if last.endswith(b"*/"):
        while first > 0 and at - first < LOOKED_ABOVE and b"/*" not in lines[first]:
            first -= 1
        if not lines[first].lstrip().startswith(b"/*"):
            return ""  # a comment behind code is not about what follows
    elif _LINE_COMMENT.match(last):
        while first > 0 and at - first < LOOKED_ABOVE and _LINE_COMMENT.match(lines[first - 1]):
            first -= 1
    else:
        return ""
    for line in lines[first : at + 1]:
        plain = _MARKS.sub(b"", line).strip()
        if plain:
            return one_line(plain, DOC)
    return ""
