"""A line of bash into its simple commands.

Only constructs that are known are read; every other one, and every character between them that is no plain
space, makes the line unreadable. Words are read by `words`, a second time and apart from the parser.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from agent.judge.command import Command, Redirect
from agent.judge.conditions import what_it_may_run
from agent.judge.grammar import (
    DELIMITER,
    NAME,
    PLAIN_OPERATORS,
    RESERVED,
    STRUCTURE,
    TOKENS,
    WORDS,
    descendants,
    tree,
)
from agent.judge.marks import check_marks, children
from agent.judge.words import Unreadable, Word, read_word

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_DEPTH: Final = 40
MAX_COMMANDS: Final = 500


@dataclass(frozen=True, slots=True)
class _Around:
    piped: str | None = None
    repeated: bool = False
    depth: int = 0


def parse(line: str) -> list[Command]:
    """The simple commands of a line, those inside substitutions before those that use them.

    Raises:
        Unreadable: it cannot be parsed completely, or is too large, too deep or too slow to.
    """
    source = line.encode("utf-8", "surrogatepass")
    reader = _Reader(source)
    try:
        reader.walk(tree(source), _Around())
    except UnicodeDecodeError as error:
        raise Unreadable("a part of it ends within a character") from error
    return reader.commands


class _Reader:
    def __init__(self, source: bytes) -> None:
        self.source = source
        self.commands: list[Command] = []

    def walk(self, node: "Node", around: _Around) -> None:
        """Read one node of the structure and everything below it."""
        around = replace(around, depth=around.depth + 1)
        if around.depth > MAX_DEPTH:
            raise Unreadable("it nests too deeply")
        match node.type:
            case kind if kind in STRUCTURE:
                self._each(node, around)
            case "list":
                self._list(node, around)
            case "pipeline":
                self._pipeline(node, around)
            case "compound_statement":
                if self._text(node).startswith("(("):
                    self._other(node, around, odd="arithmetic can run what a variable holds")
                else:
                    self._each(node, around)
            case "while_statement":
                self._each(node, replace(around, repeated=True))
            case "for_statement":
                self._for(node, around)
            case "case_statement" | "case_item":
                self._case(node, around)
            case "command":
                self._command(node, around, ())
            case "redirected_statement":
                self._redirected(node, around)
            case "variable_assignment" | "variable_assignments":
                self._assignment(node, around)
            case "function_definition":
                self._function(node, around)
            case "declaration_command" | "unset_command":
                self._other(node, around, odd="changes variables of the shell, which later commands use")
            case "test_command":
                self._test(node, around)
            case "c_style_for_statement":
                self._other(node, around, odd="arithmetic can run what a variable holds")
            case "file_redirect":
                redirect, extra = self._file_redirect(node, around)
                self._add(Command(self._text(node), extra, redirects=(redirect,)), around)
            case other:
                raise Unreadable(f"it holds a construct that is not judged ({other.replace('_', ' ')})")

    # ---- structure

    def _each(self, node: "Node", around: _Around) -> None:
        for child in self._children(node):
            if not self._is_token(child):
                self.walk(child, around)

    def _list(self, node: "Node", around: _Around) -> None:
        rest: list[Node] = []
        while node.type == "list":  # they nest to the left, as deep as there are commands
            children = self._children(node)
            rest += [child for child in reversed(children[1:]) if not self._is_token(child)]
            node = children[0]
        self.walk(node, around)
        for child in reversed(rest):
            self.walk(child, around)

    def _pipeline(self, node: "Node", around: _Around) -> None:
        before = around.piped
        for child in self._children(node):
            if self._is_token(child):
                before = self.source[node.start_byte : child.start_byte].decode().strip()
            else:
                self.walk(child, replace(around, piped=before))

    def _for(self, node: "Node", around: _Around) -> None:
        odd = None
        inside = replace(around, repeated=True)
        for child in self._children(node):
            if child.type == "select":
                odd = "`select` waits for input"
            elif child.type == "variable_name":
                name = self._text(child)
                if name.lower() != name:
                    odd = f"sets {name}, which later commands may obey"
            elif child.type in WORDS:
                odd = self._nested(child, around) or odd
                self._word(child)
            elif child.type in ("do_group", "compound_statement"):
                self.walk(child, inside)
            elif not self._is_token(child):
                raise Unreadable("it holds a loop that is not judged")
        if odd is not None:
            self._add(Command(self._text(node), odd=odd), around)

    def _case(self, node: "Node", around: _Around) -> None:
        odd = None
        for child in self._children(node):
            if child.type in WORDS:
                odd = self._nested(child, around) or odd
            elif not self._is_token(child):
                self.walk(child, around)
        if odd is not None:
            self._add(Command(self._text(node), odd=odd), around)

    def _function(self, node: "Node", around: _Around) -> None:
        name = node.child_by_field_name("name")
        body = node.child_by_field_name("body")
        if name is None or body is None:
            raise Unreadable("it defines a function in a way that is not judged")
        text = self._text(name)
        odd = f"defines a function {text!r}, which later commands may call"
        self._add(Command(self._text(node), odd=odd, defines=text), around)
        self.walk(body, replace(around, repeated=True))
        for child in self._children(node):
            if child.type.endswith("_redirect"):
                raise Unreadable("it redirects a function")

    def _test(self, node: "Node", around: _Around) -> None:
        odd = self._nested(node, around)
        odd = what_it_may_run(self.source, node) or odd
        self._add(Command(self._text(node), (Word("[", "["),), odd=odd), around)

    def _assignment(self, node: "Node", around: _Around) -> None:
        nodes = [node] if node.type == "variable_assignment" else self._children(node)
        assigned, odd = [], None
        for child in nodes:
            pair, found = self._assigned(child, around)
            assigned.append(pair)
            odd = found or odd
        odd = odd or f"sets {assigned[0][0]}, which later commands may obey"
        self._add(Command(self._text(node), assigned=tuple(assigned), odd=odd), around)

    def _other(self, node: "Node", around: _Around, odd: str) -> None:
        """Something with no words to judge: what is substituted or run inside is, the rest asks."""
        if node.type == "c_style_for_statement":
            for child in node.children:
                if child.type in ("do_group", "compound_statement"):
                    self.walk(child, replace(around, repeated=True))
                else:
                    self._nested(child, around)
        else:
            self._nested(node, around)
        self._add(Command(self._text(node), odd=odd), around)

    # ---- simple commands

    def _redirected(self, node: "Node", around: _Around) -> None:
        body, redirects = None, []
        for child in self._children(node):
            if child.type.endswith("_redirect"):
                redirects.append(child)
            elif body is None:
                body = child
            else:
                raise Unreadable("it redirects in a way that is not judged")
        if body is not None and body.type == "command":
            self._command(body, around, tuple(redirects))
            return
        fed = any(child.type != "file_redirect" or "<" in self._text(child) for child in redirects)
        if body is not None:
            inner = replace(around, piped=around.piped or (self._text(node) if fed else None))
            self.walk(body, inner)
        found = _Found()
        for child in redirects:
            self._redirect(child, around, found)
        if found.extra and body is not None:
            raise Unreadable("it redirects in a way that is not judged")
        self._add(
            Command(self._text(node), tuple(found.extra), redirects=tuple(found.redirects), odd=found.odd),
            around,
        )
        self._after(found, around, self._text(node))

    def _command(self, node: "Node", around: _Around, redirects: tuple["Node", ...]) -> None:
        words: list[Word] = []
        assigned: list[tuple[str, Word]] = []
        found, odd, end = _Found(), None, -1
        for child in self._children(node):
            if child.type == "variable_assignment":
                pair, strange = self._assigned(child, around)
                assigned.append(pair)
                odd = strange or odd
            elif child.type.endswith("_redirect"):
                self._redirect(child, around, found)
            else:
                if child.start_byte == end:
                    raise Unreadable(f"{self._text(node)[:40]!r} can be read in two ways")
                inner = child.children[0] if child.type == "command_name" else child
                if child.type == "command_name" and child.child_count != 1:
                    raise Unreadable("it names its program in a way that is not judged")
                odd = self._nested(inner, around) or odd
                words.append(self._word(inner))
                end = child.end_byte
        for child in redirects:
            self._redirect(child, around, found)
        words += found.extra
        odd = odd or found.odd
        if words and words[0].value in RESERVED and not words[0].quoted:
            if words[0].value != "coproc":
                raise Unreadable(f"{words[0].value!r} stands where a command is expected")
            odd = "`coproc` leaves a command running"
        fed = found.text is not None or found.heredoc or any(r.operator == "<" for r in found.redirects)
        source = self._text(node) if not redirects else self._text(node.parent or node)
        self._add(
            Command(
                source,
                tuple(words),
                tuple(assigned),
                tuple(found.redirects),
                odd=odd,
                fed=fed or found.herestring,
                text=found.text,
            ),
            around,
        )
        self._after(found, around, source)

    def _after(self, found: "_Found", around: _Around, source: str) -> None:
        """What the parser put inside a here-document although it stands behind it on the line."""
        for child in found.piped:
            for stage in self._children(child):
                if not self._is_token(stage):
                    self.walk(stage, replace(around, piped=source.split("\n", 1)[0]))
        for child in found.following:
            self.walk(child, around)

    def _assigned(self, node: "Node", around: _Around) -> tuple[tuple[str, Word], str | None]:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        text = self._text(name) if name is not None else ""
        odd = self._nested(node, around)
        if not NAME.fullmatch(text):
            return (text, Word(self._text(node), None)), odd or "assigns to an element"
        if value is None:
            return (text, Word("", "")), odd
        if value.type == "array":
            return (text, Word(self._text(value), None)), odd
        return (text, self._word(value)), odd

    def _redirect(self, node: "Node", around: _Around, found: "_Found") -> None:
        if node.type == "file_redirect":
            redirect, extra = self._file_redirect(node, around, found)
            found.redirects.append(redirect)
            found.extra += extra
        elif node.type == "herestring_redirect":
            for child in self._children(node):
                if child.is_named and child.type != "file_descriptor":
                    found.odd = self._nested(child, around) or found.odd
                    found.text = self._word(child).value
            found.herestring = True
        elif node.type == "heredoc_redirect":
            self._heredoc(node, around, found)
        else:
            raise Unreadable("it redirects in a way that is not judged")

    def _file_redirect(
        self, node: "Node", around: _Around, found: "_Found | None" = None
    ) -> tuple[Redirect, tuple[Word, ...]]:
        operator, words, end = "", [], -1
        for child in self._children(node):
            if child.type == "file_descriptor":
                if not self._text(child).isdigit():
                    raise Unreadable("it redirects into a variable")
            elif child.is_named or child.type in WORDS:
                if child.start_byte == end:
                    raise Unreadable(f"{self._text(node)[:40]!r} can be read in two ways")
                odd = self._nested(child, around)
                if odd and found is not None:
                    found.odd = odd
                words.append(self._word(child))
                end = child.end_byte
            else:
                operator = child.type
        if operator.endswith("&-"):
            return Redirect(operator, None), tuple(words)
        if not words or operator not in ("<", ">", ">>", ">|", "&>", "&>>", ">&", "<&"):
            raise Unreadable("it redirects in a way that is not judged")
        return Redirect(operator, words[0]), tuple(words[1:])

    def _heredoc(self, node: "Node", around: _Around, found: "_Found") -> None:
        delimiter, body, dash, quoted = "", "", False, False
        found.heredoc = True
        for child in self._children(node):
            match child.type:
                case "<<" | "<<-":
                    dash = child.type == "<<-"
                case "heredoc_start":
                    parts = DELIMITER.fullmatch(self._text(child))
                    if parts is None or (parts[1] in ("'", '"')) != bool(parts[3]):
                        raise Unreadable("it holds a here-document that is not judged")
                    quoted, delimiter = bool(parts[1]), parts[2]
                case "heredoc_body":
                    body = self._text(child)
                    if not quoted:
                        found.odd = self._nested(child, around, text=True) or found.odd
                case "heredoc_end":
                    self._check_end(child, delimiter, dash)
                case "file_redirect":
                    redirect, extra = self._file_redirect(child, around, found)
                    found.redirects.append(redirect)
                    found.extra += extra
                case "pipeline":
                    found.piped.append(child)
                case "&&" | "||" | ";" | "file_descriptor":
                    pass
                case kind if kind in WORDS and not found.piped and not found.following:
                    found.odd = self._nested(child, around) or found.odd
                    found.extra.append(self._word(child))
                case _:
                    found.following.append(child)
        lines = body.split("\n")
        if any((line.lstrip("\t") if dash else line) == delimiter for line in lines[:-1]):
            raise Unreadable("it holds a here-document that can be read in two ways")
        if quoted or not any(mark in body for mark in "$`\\"):
            found.text = "\n".join(line.lstrip("\t") for line in lines) if dash else body

    def _check_end(self, node: "Node", delimiter: str, dash: bool) -> None:
        start = self.source.rfind(b"\n", 0, node.start_byte) + 1
        stop = self.source.find(b"\n", node.end_byte)
        line = self.source[start : stop if stop >= 0 else len(self.source)].decode()
        if (line.lstrip("\t") if dash else line) != delimiter:
            raise Unreadable("it holds a here-document that can be read in two ways")

    # ---- inside words

    def _word(self, node: "Node") -> Word:
        if node.type == "process_substitution":
            return Word(self._text(node), None, stream=self._text(node).startswith("<"))
        word = read_word(self._text(node))
        if word.value is not None and any(
            leaf.type in ("command_substitution", "process_substitution") for leaf in descendants(node)
        ):
            raise Unreadable(f"{word.source[:40]!r} can be read in two ways")
        return word

    def _nested(self, node: "Node", around: _Around, *, text: bool = False) -> str | None:
        """Read the substitutions inside a word or a here-document's `text`; returns what else in it can run
        something."""
        check_marks(self.source, node, quotes=not text)
        return self._inside(node, around)

    def _inside(self, node: "Node", around: _Around) -> str | None:
        around = replace(around, piped=None, depth=around.depth + 1)
        if around.depth > MAX_DEPTH:
            raise Unreadable("it nests too deeply")
        odd = None
        for child in [node] if node.type.endswith("_substitution") else node.children:
            if child.type in ("command_substitution", "process_substitution"):
                self.walk(child, around)
                continue
            odd = self._inside(child, around) or odd
        if node.type == "expansion":
            odd = self._expansion(node) or odd
        elif node.type == "arithmetic_expansion" and any(
            leaf.type in ("variable_name", "word", "simple_expansion", "expansion", "subscript")
            or leaf.type.endswith("string")
            for leaf in descendants(node)
        ):
            odd = "arithmetic can run what a variable holds"
        return odd

    def _expansion(self, node: "Node") -> str | None:
        """Whether `${…}` only looks: it can also assign, and run what a variable holds."""
        children = [child for child in node.children if child.type not in ("${", "}")]
        names = [child for child in children if child.type in ("variable_name", "special_variable_name")]
        operators = [child.type for child in children if not child.is_named]
        only_looks = (
            len(names) == 1
            and not any(child.type == "subscript" for child in children)
            and (all(operator in PLAIN_OPERATORS for operator in operators))
            and ":=" not in self._text(node)
            and "@" not in self._text(node)
        )
        return None if only_looks else f"{self._text(node)[:40]} can do more than look a variable up"

    # ---- small things

    def _add(self, command: Command, around: _Around) -> None:
        if len(self.commands) >= MAX_COMMANDS:
            raise Unreadable(f"it holds more than {MAX_COMMANDS} commands")
        self.commands.append(
            replace(command, piped=around.piped, repeated=command.repeated or around.repeated)
        )

    def _text(self, node: "Node") -> str:
        return self.source[node.start_byte : node.end_byte].decode()

    def _children(self, node: "Node") -> list["Node"]:
        return children(self.source, node)

    def _is_token(self, node: "Node") -> bool:
        if node.is_named:
            return False
        if node.type not in TOKENS:
            raise Unreadable(f"it holds a construct that is not judged ({node.type!r})")
        return True


class _Found:
    """What the redirections of one command hold."""

    def __init__(self) -> None:
        self.redirects: list[Redirect] = []
        self.extra: list[Word] = []
        self.piped: list[Node] = []
        self.following: list[Node] = []
        self.odd: str | None = None
        self.text: str | None = None
        self.heredoc = self.herestring = False
