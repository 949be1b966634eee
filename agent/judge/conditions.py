"""`[ … ]` and `[[ … ]]`: they read, but some forms run what a variable holds."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from agent.judge.grammar import COMPARES, META, WORDS
from agent.judge.marks import children
from agent.judge.words import Unreadable, read_word

if TYPE_CHECKING:
    from tree_sitter import Node

_EXPANSIONS = frozenset({"simple_expansion", "expansion", "command_substitution", "arithmetic_expansion"})


def what_it_may_run(source: bytes, node: "Node") -> str | None:
    """Why a condition is more than a look; None if it is not. What is substituted in it is judged elsewhere.

    Raises:
        Unreadable: the shell would read something in it as another command or as a file to write.
    """
    _check_gaps(source, node)
    own = list(_own(node))
    leaves = {source[leaf.start_byte : leaf.end_byte].decode() for leaf in own if not leaf.children}
    double = source[node.start_byte : node.start_byte + 2] == b"[["
    if not double and META & leaves:
        raise Unreadable("`[ … ]` holds what the shell would read as another command or a file")
    if {"-v", "-R"} & leaves or (double and COMPARES & leaves):
        return "a comparison can run what a variable holds"
    if not double and not all(_in_place(leaf) for leaf in own if leaf.type in _EXPANSIONS):
        return "a variable in it may turn out to be an operator, which can run what another holds"
    return None


def _own(node: "Node") -> Iterator["Node"]:
    """A node and all below it, but for what is inside substitutions."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        if current.type not in _EXPANSIONS:
            waiting += current.children


def _in_place(node: "Node") -> bool:
    """Whether an expansion is what it is by its place: quoted, and beside an operator that is written."""
    quoted = node.parent
    around = quoted.parent if quoted is not None else None
    if quoted is None or quoted.type != "string" or around is None:
        return False
    if around.type == "test_command":  # alone in it
        return sum(child.is_named for child in around.children) == 1
    return around.type in ("unary_expression", "binary_expression")


def _check_gaps(source: bytes, node: "Node") -> None:
    for child in children(source, node) if node.children else ():
        if child.type not in WORDS:
            _check_gaps(source, child)
        elif child.type not in ("test_operator", "extglob_pattern", "process_substitution"):
            read_word(source[child.start_byte : child.end_byte].decode())
