"""What a change did to the syntax of its files: said in its result, never enforced."""

import asyncio
from dataclasses import dataclass, replace
from typing import Final

from tools.index import Index
from tools.index.languages import language_of
from tools.index.parsing import MAX_BYTES, Flaw, Parsed
from tools.result import FileChange, ToolResult
from tools.text import visible
from tools.workspace import Workspace

CHECK_S: Final = 5.0
"""Seconds for all files of a result; what takes longer goes unsaid."""
FILES: Final = 10


@dataclass(frozen=True, slots=True)
class Broken:
    """A file with more broken places than before. `line` is the first new one, if it is known."""

    path: str
    before: int
    after: int
    line: int | None
    missing: str

    def __str__(self) -> str:
        where = f", near line {self.line}" if self.line else ""
        missing = f" ({self.missing!r} is missing)" if self.missing else ""
        was = "was unbroken before" if not self.before else f"had {self.before} broken places before"
        return f"Syntax: {visible(self.path)} does not parse any more{where}{missing}; it {was}."


async def with_syntax(result: ToolResult, workspace: Workspace) -> ToolResult:
    """The result, and a line for each file in whose syntax the change broke something.

    Files that were as broken before, in languages the index does not know, over 1 MB, or beyond the first ten
    are not mentioned.
    """
    changes = [change for change in result.changes if _is_checked(change)][:FILES]
    if result.error is not None or not changes:
        return result
    try:
        async with asyncio.timeout(CHECK_S):
            found = await asyncio.gather(*(_checked(change, workspace) for change in changes))
    except TimeoutError:
        return result
    broken = [one for one in found if one is not None]
    if not broken:
        return result
    text = "\n".join([result.text, *map(str, broken)])
    return replace(result, text=text, data={**result.data, "syntax": [one.path for one in broken]})


def _is_checked(change: FileChange) -> bool:
    return (
        change.after is not None
        and change.after != change.before
        and len(change.after) <= MAX_BYTES
        and b"\0" not in change.after
        and language_of(change.path, change.after) is not None
    )


async def _checked(change: FileChange, workspace: Workspace) -> Broken | None:
    index = Index.of(workspace)
    after = await index.parse(change.path, change.after or b"", CHECK_S)
    if after is None or not after.errors:
        return None
    before = await index.parse(change.path, change.before, CHECK_S) if change.before else None
    if change.before and before is None:
        return None
    errors = before.errors if before is not None else 0
    if after.errors <= errors:
        return None
    flaw = _first_new(before, after, _unchanged(change))
    line, missing = (flaw.line, flaw.missing) if flaw is not None else (None, "")
    return Broken(change.path, errors, after.errors, line, missing)


def _first_new(before: Parsed | None, after: Parsed, unchanged: int) -> Flaw | None:
    """The first broken place that was not there before; lines above the change are the same in both."""
    old = {flaw for flaw in before.flaws if flaw.line <= unchanged} if before is not None else set()
    return next((flaw for flaw in after.flaws if flaw not in old), None)


def _unchanged(change: FileChange) -> int:
    """How many lines at the beginning of the file are as they were."""
    before, after = (change.before or b"").split(b"\n"), (change.after or b"").split(b"\n")
    for number, (old, new) in enumerate(zip(before, after, strict=False)):
        if old != new:
            return number
    return min(len(before), len(after))
