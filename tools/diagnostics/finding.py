"""One thing that a checker says, and what is new between two lists of them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from tools.text import shortened

Severity = Literal["error", "warning", "info"]
ORDER: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}


class Finding(NamedTuple):
    """`path` is relative to the workspace, POSIX; lines and columns count from 1, 0 = of the whole file."""

    path: str
    line: int
    column: int
    severity: Severity
    code: str
    message: str

    @property
    def identity(self) -> tuple[str, str, str]:
        """What stays the same when lines move."""
        return self.path, self.code, self.message

    def shown(self) -> str:
        code = f" {self.code}" if self.code else ""
        message = shortened(" ".join(self.message.split()), 300)
        return f"{self.path}:{self.line}:{self.column}: {self.severity}{code} {message}"


def added(now: Sequence[Finding], before: Iterable[Finding]) -> list[Finding]:
    """What is in `now` more often than it was before. Of several alike, the last ones count as added."""
    left = Counter(finding.identity for finding in before)
    found: list[Finding] = []
    for finding in now:
        if left[finding.identity] > 0:
            left[finding.identity] -= 1
        else:
            found.append(finding)
    return found


def sort(findings: Iterable[Finding], changed: set[str]) -> list[Finding]:
    """Errors first, those of changed files before others, then by place."""
    return sorted(
        findings,
        key=lambda finding: (
            ORDER[finding.severity],
            finding.path not in changed,
            finding.path,
            finding.line,
            finding.column,
        ),
    )
