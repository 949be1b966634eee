"""Lets a model too small to call tools by itself choose one: which, if any, and with which words.

A model of 135M parameters answers questions but never begins a tool call unless made to. Asked in a short
prompt of examples, though, its own log-probs tell requests about files from other questions, and copy the
right words. So before the answer to a user's message it scores every short command that can be made from
that message's words (`read README.md`, `grep timeout`, `shell make test`) against `answer`. Where the
commands together outweigh the answer by `THRESHOLD`, the most probable one becomes the opening of the
answer. Nothing is added that the message does not say, and such a generation is marked as constrained.
"""

import math
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final

from agent.rendering.chatml import END, OPENING, START
from agent.rendering.codec import Codec

Score = Callable[[str, Sequence[int], Sequence[Sequence[int]]], Awaitable[list[float]]]
"""`agent.engine.protocol.Engine.score`."""

KEY: Final = "routing"
"""The name under which the engine keeps the keys and values of the examples."""

THRESHOLD: Final = -1.5
"""Log-odds of any command against `answer` from which on the command is taken. Chosen on 40 requests apart
from those of the benchmark: of 20 about files 19 lay above -1.4, of 20 others all below -2.0."""

WORDS: Final = 40
"""Of a longer message only the beginning is considered."""

_INSTRUCTION: Final = (
    "Choose the tool: read opens a file, grep searches all files, shell runs a command, answer needs no file."
)
_EXAMPLES: Final = (
    ("What is in notes.txt?", "read notes.txt"),
    ("What is a variable?", "answer"),
    ("Search for error_code", "grep error_code"),
    ("Hello there", "answer"),
    ("Show me the first lines of lib/main.c", "read lib/main.c"),
    ("Write a function that multiplies two numbers", "answer"),
    ("Where is the class Parser defined?", "grep Parser"),
    ("Run the linter", "shell linter"),
    ("What is the meaning of HTTP 500?", "answer"),
    ("Explain the file config.yaml", "read config.yaml"),
    ("Which files use connect?", "grep connect"),
    ("Thanks a lot", "answer"),
    ("Run ls -l", "shell ls -l"),
    ("Find where the port is set", "grep port"),
    ("How do loops work in Python?", "answer"),
    ("List the folders", "shell ls"),
    ("Read the Dockerfile", "read Dockerfile"),
    ("Who are you?", "answer"),
    ("Look for uses of open_door", "grep open_door"),
)
_COMMANDS: Final = {"read": ("path", 1), "grep": ("pattern", 2), "shell": ("command", 4)}
"""Tool → its argument and how many words of the message that may be."""

_ATTACHED: Final = re.compile(r"<(\w+)[^>]*>.*?</\1>|```.*?```", re.DOTALL)
_PATH: Final = re.compile(r".*[./].*|[A-Z]+|Makefile|Dockerfile")
"""What a path looks like, so that an identifier is searched for instead of read."""
_EDGE: Final = ".,;:!?'\"`()[]<>"


@dataclass(frozen=True, slots=True)
class Route:
    """A tool call that the model prefers to an answer; `odds` by how much (log)."""

    name: str
    arguments: dict[str, Any]
    odds: float


class Router:
    """Scores commands made of a message's words, for models that read ChatML."""

    def __init__(self, codec: Codec, score: Score) -> None:
        self._codec, self._score = codec, score
        examples = "".join(f"{_user(said)}{OPENING} {command}{END}\n" for said, command in _EXAMPLES)
        self._head = codec.encode_control(f"{START}system\n{_INSTRUCTION}{END}\n{examples}")

    async def warm(self) -> None:
        """Compute the examples' keys and values ahead of the first request."""
        await self._score(KEY, self._head, [])

    async def choose(self, message: str, tools: Sequence[dict[str, Any]]) -> Route | None:
        """The call that should open the answer to a user's `message`, or None."""
        offered = {tool["function"]["name"] for tool in tools}
        found = list(commands(message, offered))
        if not found:
            return None
        encode, control = self._codec.encode, self._codec.encode_control
        ids = [
            *self._head,
            *control(f"{START}user\n"),
            *encode(" ".join(_words(message))),
            *control(f"{END}\n{OPENING}"),
        ]
        texts = ["answer", *(f"{name} {value}" for name, value in found)]
        end = control(END)
        scores = await self._score(KEY, ids, [[*encode(f" {text}"), *end] for text in texts])
        answer, rest = scores[0], scores[1:]
        best = max(range(len(rest)), key=rest.__getitem__)
        odds = rest[best] - answer + math.log(sum(math.exp(score - rest[best]) for score in rest))
        if odds < THRESHOLD:
            return None
        name, value = found[best]
        return Route(name, {_COMMANDS[name][0]: value}, odds)


def _user(text: str) -> str:
    return f"{START}user\n{text}{END}\n"


def _words(message: str) -> list[str]:
    """The user's own first words, without what was attached."""
    return _ATTACHED.sub(" ", message).split()[:WORDS]


def commands(message: str, offered: Set[str]) -> Iterator[tuple[str, str]]:
    """Every command of an offered tool whose argument is a run of the message's words: (tool, argument).

    Long messages give single words only; `read` gets only what looks like a path.
    """
    words = _words(message)
    bare = [word.strip(_EDGE) for word in words]
    made: set[tuple[str, str]] = set()
    for name, (_, longest) in _COMMANDS.items():
        if name not in offered:
            continue
        for size in range(1, (longest if len(words) <= 16 else 1) + 1):
            for start in range(len(words) - size + 1):
                # Only the edges of a run are bare: words inside it keep their punctuation.
                inner, last = words[start + 1 : start + size - 1], bare[start + size - 1]
                value = bare[start] if size == 1 else " ".join((bare[start], *inner, last))
                if value and (name != "read" or _PATH.fullmatch(value)) and (name, value) not in made:
                    made.add((name, value))
                    yield name, value
