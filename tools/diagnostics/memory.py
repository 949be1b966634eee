"""What checkers of whole projects said before, to know what is new: their answers depend on every file."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.diagnostics.finding import Finding, added


@dataclass(slots=True)
class Memory:
    """Findings by checker, folder and snapshot, of the newest runs."""

    _known: dict[tuple[str, Path, str], tuple[Finding, ...]] = field(default_factory=dict)

    def keep(self, checker: str, folder: Path, tree: str | None, findings: Sequence[Finding]) -> None:
        """What a checker found in the files of a snapshot."""
        if tree is None:
            return
        key = (checker, folder, tree)
        self._known.pop(key, None)
        self._known[key] = tuple(findings)
        while len(self._known) > 64:
            del self._known[next(iter(self._known))]

    def new(
        self, checker: str, folder: Path, turn_tree: str | None, findings: Sequence[Finding]
    ) -> list[Finding] | None:
        """What was not found when the turn began; None where nobody asked then."""
        before = self._known.get((checker, folder, turn_tree or ""))
        return None if before is None else added(findings, before)
