"""Runs one checker inside the sandbox, and says honestly how much its answer is worth."""

import logging
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from tools.diagnostics.checkers import Checker
from tools.diagnostics.finding import Finding
from tools.diagnostics.parsing import Unreadable
from tools.errors import ToolTimeout
from tools.sandbox import Ran, Sandbox

log = logging.getLogger(__name__)

State = Literal["clean", "fresh", "stale", "timed_out", "failed"]
"""`clean`: nothing found in the present files. `fresh`: findings of the present files. `stale`: the files
changed while it ran, or the editor holds other text. The last two say nothing of the files."""

_MOST_OUTPUT: Final = 32 * 1024 * 1024
_PROGRAMS: Final = """
for program in "$@"; do
  case $program in
    */*) [ -f "$program" ] && [ -x "$program" ] && printf %s "$program" && exit 0 ;;
    *) found=$(command -v -- "$program") && printf %s "$found" && exit 0 ;;
  esac
done
exit 3
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One checker in one folder. `folder` is absolute; `why` is set where nothing is known."""

    checker: Checker
    folder: Path
    state: State
    findings: tuple[Finding, ...] = ()
    why: str = ""
    new: tuple[Finding, ...] | None = None
    """What was not there when the turn began; None where that is not known."""
    seen: frozenset[str] = field(default_factory=frozenset)

    @property
    def known(self) -> bool:
        return self.state in ("clean", "fresh", "stale")

    @property
    def label(self) -> str:
        return self.checker.name


async def program(sandbox: Sandbox, checker: Checker, folder: Path) -> str | None:
    """Where the checker's program is, inside; None where it is not installed."""
    inside = [folder, *folder.parents]
    places = inside[: inside.index(sandbox.root) + 1] if sandbox.root in inside else [folder]
    candidates: list[str] = []
    for name in checker.programs:
        candidates += [str(place / name) for place in places] if "/" in name else [name]
    ran = await sandbox.run(["/bin/sh", "-c", _PROGRAMS, "sh", *candidates], cwd=folder, timeout_s=20)
    return os.fsdecode(ran.stdout) if ran.exit_code == 0 and ran.stdout else None


async def check(
    sandbox: Sandbox, checker: Checker, found: str, folder: Path, paths: Sequence[str]
) -> tuple[State, list[Finding], str]:
    """Run it on files (relative to the workspace): state, findings, and why where there are none to know.

    The state is never `stale`: whoever calls knows what happened to the files meanwhile.
    """
    arguments = [found, *checker.arguments]
    if checker.takes_paths and paths:
        arguments += [_from(folder, sandbox.root / path) for path in paths]
    return await _checked(sandbox, checker, arguments, folder, None)


async def check_text(
    sandbox: Sandbox, checker: Checker, found: str, folder: Path, path: str, text: bytes
) -> tuple[State, list[Finding], str]:
    """Run it on text in the place of a file."""
    assert checker.stdin is not None
    name = _from(folder, sandbox.root / path)
    arguments = [found, *checker.arguments, *(word.replace("{path}", name) for word in checker.stdin)]
    return await _checked(sandbox, checker, arguments, folder, text)


async def _checked(
    sandbox: Sandbox, checker: Checker, arguments: list[str], folder: Path, stdin: bytes | None
) -> tuple[State, list[Finding], str]:
    try:
        ran = await sandbox.run(
            arguments, cwd=folder, stdin=stdin, limit=_MOST_OUTPUT, timeout_s=checker.timeout_s
        )
    except ToolTimeout:
        return "timed_out", [], f"it did not finish within {checker.timeout_s:g} s and was ended"
    if ran.exit_code not in checker.worked:
        return "failed", [], f"it exited with {ran.exit_code}: {_last_words(ran)}"
    output = ran.stderr if checker.stream == "stderr" else ran.stdout
    if len(output) >= _MOST_OUTPUT:
        return "failed", [], f"it printed more than {_MOST_OUTPUT // 1024 // 1024} MiB"
    try:
        findings = checker.parse(output.decode("utf-8", "replace"))
    except (Unreadable, KeyError, TypeError, ValueError, AttributeError) as error:
        log.info("%s: unreadable output: %s", shlex.join(arguments), error)
        return "failed", [], f"its output could not be read ({error}): {_last_words(ran)}"
    findings = [_placed(finding, folder, sandbox.root) for finding in findings]
    if not findings and ran.exit_code != 0:
        return "failed", [], f"it exited with {ran.exit_code} and named nothing: {_last_words(ran)}"
    return ("fresh" if findings else "clean"), findings, ""


def _from(folder: Path, path: Path) -> str:
    """A name that no program takes for an option."""
    name = os.path.relpath(path, folder)
    return name if name.startswith("../") else f"./{name}"


def _placed(finding: Finding, folder: Path, root: Path) -> Finding:
    """With its path relative to the workspace; checkers print it absolute, or relative to where they ran."""
    path = os.path.normpath(folder / finding.path)
    inside = os.path.relpath(path, root)
    return finding._replace(path=path if inside.startswith("..") else inside)


def _last_words(ran: Ran) -> str:
    words = (ran.stderr or ran.stdout).decode("utf-8", "replace").strip()
    return " ".join(words[-600:].split()) or "it said nothing"


def signature(root: Path, paths: Sequence[str]) -> Mapping[str, tuple[int, int, int] | None]:
    """What changes when a file does."""
    found: dict[str, tuple[int, int, int] | None] = {}
    for path in paths:
        try:
            status = os.lstat(root / path)
            found[path] = (status.st_mtime_ns, status.st_size, status.st_ino)
        except OSError:
            found[path] = None
    return found
