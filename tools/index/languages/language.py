"""What the index needs to know about one language."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

Doc = str
"""How a definition is documented: `inside` (a string at the start of its body) or `above` (comments)."""


@dataclass(frozen=True, slots=True, eq=False)
class Language:
    """`grammar` gives the capsule of the grammar.

    `definitions` is a tree-sitter query: each pattern captures a definition under the name of its kind, or
    as `scope` where it only contains others, and its name as `name`. With `container`, that text is what
    the definition belongs to though it does not stand in it. `blanks` are patterns of what is no code
    (comments, text of strings), captured as `blank`. `wrappers` are nodes around a definition that belong to
    it (decorators, `export`). `within` turns functions in such scopes into methods.
    """

    name: str
    grammar: Callable[[], object]
    definitions: str
    blanks: str
    keywords: frozenset[bytes]
    wrappers: frozenset[str] = frozenset()
    doc: Doc = "above"
    methods_in: frozenset[str] = frozenset({"class", "interface", "struct", "enum", "scope"})
    separator: str = "."
    attributes: tuple[str, ...] = ()
    """How lines above a definition begin that belong to it and are no comment, as in `#[derive(Debug)]`."""
    dollars: bool = False
    """Whether `$` is a letter of identifiers."""
    prefixes: bool = False
    """Whether letters directly before a quote mark belong to the string, as in `rb""`."""

    ascii: bool = False
    """Whether the grammar's scanner reads beyond its tables at other characters, which may end the process:
    it is then given a letter in the place of each of their bytes."""


def words(text: str) -> frozenset[bytes]:
    return frozenset(text.encode().split())


COMMENTS: Final = "(comment) @blank"
