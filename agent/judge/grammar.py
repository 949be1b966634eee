"""The grammar of bash, as far as the judge reads it, and the parser with its bounds."""

import re
import time
from typing import TYPE_CHECKING, Final

from agent.judge.names import names
from agent.judge.words import Unreadable

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_BYTES: Final = 64 * 1024
PARSE_S: Final = 0.1
"""Seconds of this thread's own work after which a line counts as unreadable: some nonsense takes the parser
minutes, while on a busy machine an ordinary line takes no more work than on an idle one."""

GAP: Final = re.compile(rb"(?:[ \t\n]|\\\n)*")
"""What may stand between two parts of the grammar."""
NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
DELIMITER: Final = re.compile(r"(['\"\\]?)([A-Za-z_][A-Za-z0-9_.-]*)(['\"]?)")
RESERVED: Final = names(
    "if then elif else fi for while until do done case esac in function select { } [[ ]] ! coproc"
)
"""Words that are no programs where a command begins."""
TOKENS: Final = RESERVED | names("; ;; ;& ;;& & && || | |& ( ) $( ` <( >(") | {"\n"}
STRUCTURE: Final = names(
    "program subshell do_group if_statement elif_clause else_clause negated_command "
    "command_substitution process_substitution"
)
"""Nodes whose children are commands and tokens."""
WORDS: Final = names(
    "word number string raw_string ansi_c_string concatenation simple_expansion expansion "
    "command_substitution process_substitution arithmetic_expansion brace_expression extglob_pattern "
    "test_operator translated_string"
)
PLAIN_OPERATORS: Final = names(":- - :+ + # ## % %% :? ?")
"""What may stand in `${…}` without changing or running anything."""
META: Final = names("< > <= >= && || | & ; ( )")
COMPARES: Final = names("-eq -ne -lt -le -gt -ge")
_ASCII: Final = bytes(range(128)) + b"x" * 128
"""What the parser is given for each byte: where a character is not ASCII its scanner reads beyond its tables,
which may end the process. To the shell such a character is an ordinary one of a word, as this letter is."""
_HIDDEN: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f\u00a0\u00ad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180e"
    r"\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e0fff]"
)


def tree(source: bytes) -> "Node":
    """The syntax of a line.

    Raises:
        Unreadable: it is too long, holds what a person cannot see, does not parse, or not in time.
    """
    if len(source) > MAX_BYTES:
        raise Unreadable(f"it is longer than {MAX_BYTES // 1024} KiB")
    if found := _HIDDEN.search(source.decode("utf-8", "surrogatepass")):
        raise Unreadable(f"it holds a character that cannot be seen (U+{ord(found.group()):04X})")
    import tree_sitter
    import tree_sitter_bash

    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
    deadline = time.thread_time() + PARSE_S

    plain = source.translate(_ASCII)

    def read(offset: int, point: object) -> bytes:
        return plain[offset : offset + 2048]

    try:
        # Read piece by piece, because only then is the deadline looked at.
        parsed = parser.parse(read, progress_callback=lambda offset, failed: time.thread_time() > deadline)
    except ValueError as error:
        raise Unreadable("it is too intricate to be parsed in time") from error
    if parsed.root_node.has_error:
        raise Unreadable("it is no bash that can be parsed")
    return parsed.root_node


def descendants(node: "Node") -> list["Node"]:
    """A node and all below it."""
    found, waiting = [], [node]
    while waiting:
        current = waiting.pop()
        found.append(current)
        waiting += current.children
    return found
