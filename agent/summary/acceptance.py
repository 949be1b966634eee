"""Whether a summary may take the place of what it summarises. Pure: facts in, a reason out."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from agent.summary.claims import claimed

NAMED = 5
"""To-dos or files that a refusal names."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What the model wrote, and what it would cost: token estimates of the conversation before and after."""

    text: str
    calls: int
    finish: str
    before: int
    after: int
    room: int
    """Tokens that the conversation may have, so that a next step fits."""


def refusal(
    offer: Offer, todos: Sequence[str], touched: Collection[str], commands: Iterable[str]
) -> str | None:
    """Why this summary is not taken, in a sentence for the model; None where it is.

    `todos` are those still open, `touched` the files known to have changed, `commands` what was run (which
    may have changed files that nobody was told of).
    """
    text = offer.text.strip()
    if not text and offer.calls:
        return "it called tools instead; none was run. Write the summary as text"
    if not text:
        return "it was empty"
    if offer.finish == "length":
        return "it was cut off at the output limit; write a shorter one"
    if dropped := [todo for todo in todos if not mentions(text, todo)]:
        return f"it says nothing of what is still to be done: {_named(dropped)}"
    if wrong := untouched(text, touched, commands):
        return f"it says that files were changed that were not: {_named(wrong)}"
    if offer.after >= offer.before:
        return "it is not shorter than the conversation; write a shorter one"
    if offer.after > offer.room:
        return "it leaves no room to go on; write a shorter one"
    return None


def mentions(text: str, todo: str) -> bool:
    """Whether at least half of a to-do's words of four letters or more (else all its words) are in a text."""
    words = _words(todo)
    telling = {word for word in words if len(word) >= 4} or words
    if not telling:
        return True
    said = _words(text)
    stems = {word[:5] for word in said if len(word) >= 4}
    found = sum(word in said or (len(word) >= 4 and word[:5] in stems) for word in telling)
    return 2 * found >= len(telling)


def untouched(text: str, touched: Collection[str], commands: Iterable[str]) -> list[str]:
    """Files that a text claims were changed, though nothing in the log can have changed them."""
    names = {PurePosixPath(path).name for path in touched}
    ran = "\n".join(commands)
    return [
        path
        for path in claimed(text)
        if PurePosixPath(path).name not in names and PurePosixPath(path).name not in ran
    ]


def _words(text: str) -> set[str]:
    return set(re.findall(r"[^\W_]+", text.casefold()))


def _named(things: Sequence[str]) -> str:
    more = f" and {len(things) - NAMED} more" if len(things) > NAMED else ""
    return "; ".join(thing[:120] for thing in things[:NAMED]) + more
