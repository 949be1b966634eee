"""One definition in a source file."""

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal[
    "module",
    "class",
    "interface",
    "struct",
    "enum",
    "union",
    "type",
    "function",
    "method",
    "field",
    "variable",
    "constant",
    "macro",
]

KINDS: Final[tuple[Kind, ...]] = Kind.__args__


@dataclass(frozen=True, slots=True)
class Symbol:
    """A definition. Lines count from 1, both ends included; `start` and `end` are bytes of the file.

    `container` names what it is in (`Class`, `Outer.Inner`), "" at top level. `signature` is its head on one
    line, without its body. `doc` is the first line of what documents it. Decorators and attributes that
    belong to it are inside the span.
    """

    kind: Kind
    name: str
    container: str
    line: int
    last_line: int
    start: int
    end: int
    signature: str
    doc: str = ""
