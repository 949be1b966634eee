"""One source file parsed: its definitions, the identifiers it uses, where its syntax is broken.

Runs in the child alone: the parsers are C code that meets hostile files.
"""

from collections import defaultdict
from dataclasses import astuple, dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, cast

import orjson

from tools.index.languages import language
from tools.index.signatures import doc_above, doc_inside, one_line, signature
from tools.index.symbol import Kind, Symbol

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Query

    from tools.index.languages.language import Language

MAX_BYTES: Final = 1_000_000
"""The largest text that is parsed or indexed."""
MAX_SYMBOLS: Final = 20_000
MAX_WORDS: Final = 50_000
MAX_WORD: Final = 120
MAX_CHILDREN: Final = 20_000
MAX_ERRORS: Final = 50
"""Most of a file that are kept; whoever writes more definitions in one file generated them."""

_DIGITS: Final = b"0123456789"
_SCOPES: Final = frozenset(
    {"module", "class", "interface", "struct", "enum", "union", "scope", "function", "method"}
)
_NEVER: Final = frozenset({"if", "else", "for", "while", "switch", "return"})
"""What a parser takes for the name of a function where it has lost its way."""
_NO_KINDS: Final = frozenset({"name", "container", "_call"})
_WEAK: Final = frozenset({"field", "variable", "type"})
"""Kinds that give way where the same name is also found as something more definite."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """A place where the syntax is broken. `missing` is what the parser expected, "" where it cannot say."""

    line: int
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Parsed:
    """`flaws` holds the first ones, `errors` counts all."""

    language: str
    symbols: tuple[Symbol, ...]
    errors: int = 0
    flaws: tuple[Flaw, ...] = ()
    cut: bool = False

    def packed(self) -> bytes:
        return orjson.dumps(
            [
                self.language,
                [astuple(symbol) for symbol in self.symbols],
                self.errors,
                [astuple(flaw) for flaw in self.flaws],
                self.cut,
            ]
        )

    @classmethod
    def unpacked(cls, data: bytes) -> "Parsed":
        name, symbols, errors, flaws, cut = orjson.loads(data)
        return cls(
            name, tuple(Symbol(*one) for one in symbols), errors, tuple(Flaw(*one) for one in flaws), cut
        )


_ASCII: Final = bytes(range(128)) + b"x" * 128


@dataclass(frozen=True, slots=True)
class _Grammar:
    language: "Language"
    parser: "Parser"
    query: "Query"
    errors: "Query"
    kinds: dict[int, str]
    """By pattern, as they are met: what it captures a definition as."""


@cache
def _grammar(name: str) -> _Grammar:
    import tree_sitter

    known = language(name)
    grammar = tree_sitter.Language(known.grammar())
    query = tree_sitter.Query(grammar, known.definitions + known.blanks)
    errors = tree_sitter.Query(grammar, "(ERROR) @error (MISSING) @missing")
    return _Grammar(known, tree_sitter.Parser(grammar), query, errors, {})


def parse(name: str, data: bytes, flaws: bool = False) -> tuple[Parsed, dict[bytes, list[int]]]:
    """What a text of a language holds, and its identifiers with the lines they are on.

    With `flaws` broken places are looked for, else there are none.
    """
    import tree_sitter

    grammar = _grammar(name)
    tree = grammar.parser.parse(data.translate(_ASCII) if grammar.language.ascii else data)
    root = tree.root_node
    if root.has_error and _is_rubble(root):
        # A cursor takes quadratic time to pass the countless children of such a node.
        return Parsed(name, (), 1, (Flaw(1),)), {}
    spans: list[tuple[int, int]] = []
    found: dict[int, tuple[str, Node, Node, Node | None]] = {}
    kinds = grammar.kinds
    for pattern, captures in tree_sitter.QueryCursor(grammar.query).matches(root):
        if (blanks := captures.get("blank")) is not None:
            spans += [node.byte_range for node in blanks]
            continue
        title = captures["name"][0]
        kind = kinds.get(pattern)
        if kind is None:
            kind = kinds[pattern] = next(key for key in captures if key not in _NO_KINDS)
        known = found.get(title.start_byte)
        if known is None or (known[0] in _WEAK and kind not in _WEAK):
            container = captures.get("container")
            found[title.start_byte] = (kind, title, captures[kind][0], container[0] if container else None)
    symbols = _symbols(grammar.language, data, found)
    broken = _flaws(grammar, root) if flaws and root.has_error else (0, ())
    cut = len(symbols) > MAX_SYMBOLS
    parsed = Parsed(name, tuple(symbols[:MAX_SYMBOLS]), *broken, cut)
    return parsed, _words(_code(data, spans), grammar.language)


def _code(data: bytes, spans: list[tuple[int, int]]) -> bytes:
    """The text without what is no code; its line ends stay, so that lines can be counted."""
    spans.sort()
    pieces: list[bytes] = []
    at = 0
    for start, end in spans:
        if start >= at:
            pieces.append(data[at:start])
            pieces.append(b"\n" * data.count(b"\n", start, end) or b" ")
            at = end
    pieces.append(data[at:])
    return b"".join(pieces)


def _symbols(
    known: "Language", data: bytes, found: "dict[int, tuple[str, Node, Node, Node | None]]"
) -> list[Symbol]:
    lines = data.split(b"\n") if known.doc == "above" else []
    placed: list[tuple[int, int, int, Node, tuple[str, Node, Node, Node | None]]] = []
    for at, one in found.items():
        outer = one[2]
        while known.wrappers and (parent := outer.parent) is not None and parent.type in known.wrappers:
            outer = parent
        placed.append((outer.start_byte, -outer.end_byte, at, outer, one))
    placed.sort(key=lambda one: one[:3])
    symbols: list[Symbol] = []
    scopes: list[tuple[int, str, str]] = []
    for start, negative_end, _, outer, (kind, title, node, container) in placed:
        while scopes and scopes[-1][0] <= start:
            scopes.pop()
        name = (
            data[title.start_byte : title.end_byte].decode("utf-8", "replace").removeprefix(":")
        )  # Ruby's symbols
        if len(name) > MAX_WORD or "\n" in name:
            name = one_line(name.encode(), MAX_WORD)
        inside = known.separator.join(scope[1] for scope in scopes)
        if container is not None:
            belongs = one_line(data[container.start_byte : container.end_byte], 200)
            inside = f"{inside}{known.separator}{belongs}" if inside else belongs
        if kind == "function" and scopes and scopes[-1][2] in known.methods_in:
            kind = "method"
        if kind in _SCOPES:
            scopes.append((-negative_end, name, kind))
        if kind == "scope" or not name or (kind == "function" and name in _NEVER):
            continue
        body = node.child_by_field_name("body")
        head = data[node.start_byte : body.start_byte if body is not None else node.end_byte]
        if known.doc == "inside":
            doc = doc_inside(body) if body is not None else ""
        else:
            doc = doc_above(lines, outer.start_point.row, known.attributes)
        last = outer.end_point
        symbols.append(
            Symbol(
                cast(Kind, kind),
                name,
                inside[-400:],
                title.start_point.row + 1,
                last.row + (last.column > 0),
                start,
                -negative_end,
                signature(head, 240),
                doc,
            )
        )
        if len(symbols) > MAX_SYMBOLS:
            break
    return symbols


def _is_rubble(root: "Node") -> bool:
    """Whether the parser made little of a large part of the text but a heap of tokens."""
    if root.child_count > MAX_CHILDREN:
        return root.is_error
    return any(child.is_error and child.child_count > MAX_CHILDREN for child in root.children)


def _flaws(grammar: _Grammar, root: "Node") -> tuple[int, tuple[Flaw, ...]]:
    import tree_sitter

    found = tree_sitter.QueryCursor(grammar.errors).captures(root)
    flaws = [Flaw(node.start_point.row + 1) for node in found.get("error", ())]
    flaws += [Flaw(node.start_point.row + 1, node.type) for node in found.get("missing", ())]
    flaws.sort(key=lambda flaw: flaw.line)
    return len(flaws), tuple(flaws[:MAX_ERRORS])


def _words(code: bytes, known: "Language") -> dict[bytes, list[int]]:
    """The identifiers of code whose comments and strings are blank, each with its lines."""
    found: defaultdict[bytes, list[int]] = defaultdict(list)
    # To replace what is no part of a word by spaces is far quicker than to look for words.
    text = code.translate(_spaced(known.dollars, known.prefixes))
    if known.prefixes:  # what a quote mark follows directly is no identifier
        text = text.replace(b'"', b'" ').replace(b"'", b"' ")
    for number, line in enumerate(text.split(b"\n"), 1):
        for word in dict.fromkeys(line.split()):
            found[word].append(number)
    words: dict[bytes, list[int]] = {}
    for word, lines in found.items():
        if word[0] in _DIGITS:  # 0x1F holds x1F, as a query for it would find
            plain = word.lstrip(_DIGITS)
            lines = sorted({*lines, *found.get(plain, ()), *words.get(plain, ())})
        else:
            plain = word
            lines = words.get(plain, lines)
        if not plain or plain[-1] in b"\"'" or len(plain) > MAX_WORD or plain in known.keywords:
            continue
        if plain in words or len(words) < MAX_WORDS:
            words[plain] = lines
    return words


@cache
def _spaced(dollars: bool, quotes: bool) -> bytes:
    """What is no part of a word becomes a space; line ends stay, and quotes where they matter."""
    kept = b"\n_" + b"$" * dollars + b"\"'" * quotes
    return bytes(code if code in kept or code > 127 or chr(code).isalnum() else 32 for code in range(256))
