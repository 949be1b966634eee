"""How far an index is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Phase = Literal["cold", "warming", "fresh", "unavailable"]

_REASONS = {
    "large": "over 1 MB",
    "binary": "binary",
    "crashed": "that crashed the parser",
    "unreadable": "unreadable",
    "beyond": "beyond the most files an index holds",
}


@dataclass(frozen=True, slots=True)
class State:
    """`cold`: nothing is indexed yet. `warming`: `done` of `total` files are. `fresh`: all are, as of the
    last refresh. `unavailable`: `message` says why there is no index.

    `left_out` counts, by reason, the files that are not in it.
    """

    phase: Phase = "cold"
    done: int = 0
    total: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    message: str = ""

    @property
    def complete(self) -> bool:
        return self.phase == "fresh"

    def notes(self) -> list[str]:
        """What a result that came from the index must say about it, for the model."""
        if self.phase == "unavailable":
            return [f"there is no index: {self.message}"]
        notes: list[str] = []
        if self.phase == "cold":
            notes.append("incomplete: the index is being started; ask again in a moment")
        elif self.phase == "warming":
            of = f" of {self.total}" if self.total else ""
            notes.append(f"incomplete: index still warming, {self.done}{of} files done")
        left = [
            f"{self.left_out[key]} {what}"
            for key, what in _REASONS.items()
            if key != "binary" and self.left_out.get(key)
        ]
        if left:
            notes.append(f"not indexed: files {', '.join(left)}")
        return notes
