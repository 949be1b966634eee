"""A simple command as the judge sees it, with what stands around it."""

from dataclasses import dataclass
from typing import Final

from agent.judge.words import Word

READS: Final = frozenset({"<", "<&", "<<<"})
DUPLICATES: Final = frozenset({">&", "<&"})


@dataclass(frozen=True, slots=True)
class Redirect:
    """`operator` as written; `target` None where none is named (`2>&-`)."""

    operator: str
    target: Word | None

    @property
    def writes(self) -> bool:
        if self.target is None or self.operator in READS:
            return False
        number = (self.target.value or "").rstrip("-")
        return not (self.operator in DUPLICATES and (number.isdigit() or self.target.value == "-"))


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command, in the order of the source.

    `source` is its text. `odd` says what of it cannot be judged by its words, `opaque` that it hides what
    runs. `piped` is the text of what is piped into it; `fed`: its input is a file or text; `text` is that
    text where it is fixed. `repeated`: it stands in a loop or function. `defines` names a function made.
    """

    source: str
    words: tuple[Word, ...] = ()
    assigned: tuple[tuple[str, Word], ...] = ()
    redirects: tuple[Redirect, ...] = ()
    odd: str | None = None
    opaque: str | None = None
    piped: str | None = None
    fed: bool = False
    text: str | None = None
    repeated: bool = False
    defines: str | None = None
