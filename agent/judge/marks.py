"""Checks what the parser saw: what is text, space or comment to it must be that to the shell too."""

from typing import TYPE_CHECKING, Final

from agent.judge.grammar import GAP, WORDS
from agent.judge.words import Unreadable

if TYPE_CHECKING:
    from tree_sitter import Node

_SEEN: Final = frozenset(
    {
        "command_substitution",
        "process_substitution",
        "arithmetic_expansion",
        "expansion",
        "compound_statement",
    }
)
_OPENING: Final = {b"$(", b"${", b"$["}
_PIPES: Final = {b"<(", b">("}
_META: Final = b" \t\n;|&<>()"


def check_marks(source: bytes, node: "Node", *, quotes: bool) -> None:
    """Read a node's text character by character. `quotes`: they mean something in it, unlike in a
    here-document.

    Raises:
        Unreadable: a backquote, `$(`, `${`, `<(` or the end of a word stands where the parser saw none.
    """
    word = quotes and node.type in WORDS
    _scan(source, _outermost(node), node.start_byte, node.end_byte, quotes=quotes, word=word)


def _scan(source: bytes, nodes: list["Node"], at: int, end: int, *, quotes: bool, word: bool) -> None:
    seen = {found.start_byte: found for found in nodes}
    double = False
    while at < end:
        if (found := seen.get(at)) is not None:
            if found.type in ("expansion", "arithmetic_expansion", "compound_statement"):
                inner = found.start_byte + 2
                for child in found.children:
                    if child.type not in ("$((", "$[", "((", "${"):
                        break
                    inner = child.end_byte
                _scan_inside(source, found, inner)
            at = found.end_byte
            continue
        letter, following = source[at : at + 1], source[at + 1 : at + 2]
        if letter == b"\\":
            at += 2
        elif letter == b"'" and quotes and not double:
            at = _quoted(source, at, end, ansi=source[at - 1 : at] == b"$")
        elif letter == b'"' and quotes:
            double, at = not double, at + 1
        elif (
            letter + following in (_OPENING | _PIPES if quotes and not double else _OPENING) or letter == b"`"
        ):
            raise Unreadable("it holds a substitution that can be read in two ways")
        elif word and not double and letter in _META:
            raise Unreadable("it holds a word that can be read in two ways")
        else:
            at += 1
    if double and word:
        raise Unreadable("a quotation does not end")


def _scan_inside(source: bytes, node: "Node", start: int) -> None:
    """Inside `${…}` quotes mean different things in different places: nothing is taken for quoted."""
    seen = [found for child in node.children for found in _outermost(child)]
    _scan(source, seen, start, node.end_byte, quotes=False, word=False)


def _outermost(node: "Node") -> list["Node"]:
    found, waiting = [], [node]
    while waiting:
        current = waiting.pop()
        if current.type in _SEEN:
            found.append(current)
        else:
            waiting += current.children
    return found


def _quoted(source: bytes, at: int, end: int, *, ansi: bool) -> int:
    at += 1
    while at < end and source[at : at + 1] != b"'":
        at += 2 if ansi and source[at : at + 1] == b"\\" else 1
    if at >= end:
        raise Unreadable("a quotation does not end")
    return at + 1


def children(source: bytes, node: "Node") -> list["Node"]:
    """The children of a node without comments. Between them may be nothing but space.

    Raises:
        Unreadable: the parser passed over something, or took for a comment what is none.
    """
    found, at = [], node.start_byte
    for child in node.children:
        _gap(source, at, child.start_byte)
        at = child.end_byte
        if child.type == "comment":
            _comment(source, child)
        else:
            found.append(child)
    _gap(source, at, node.end_byte)
    if node.parent is None:
        _gap(source, 0, node.start_byte)
        _gap(source, node.end_byte, len(source))
    return found


def _gap(source: bytes, start: int, end: int) -> None:
    if start < end and not GAP.fullmatch(source, start, end):
        raise Unreadable("it holds something that the parser passed over")


def _comment(source: bytes, node: "Node") -> None:
    before = source[max(node.start_byte - 2, 0) : node.start_byte]
    if (before and before[-1:] not in b" \t\n;&|()") or before[:1] == b"\\" or b"\n" in (node.text or b""):
        raise Unreadable("it holds a comment that can be read in two ways")
