"""The `edit` tool: replaces text in one file, in one transaction."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, field_validator

from tools.applying import (
    Ambiguous,
    Applied,
    EditError,
    Hunk,
    NoChange,
    NoMatch,
    Overlap,
    Refused,
    Unfit,
    apply_edits,
)
from tools.contents import Content, canonical, content, missing
from tools.encodings import Binary
from tools.errors import EnvironmentFault, ToolError
from tools.files import Changed, NotFound, create, replace
from tools.matching import Window, find
from tools.refusals import REDACTION_MARKER
from tools.repair import SHOWN_LINES, excerpt, nearest
from tools.result import FileChange, Proposal, ToolResult
from tools.text import Text, line_number, visible
from tools.tool import Arguments, Progress, Tool
from tools.workspace import Workspace, content_hash

__all__ = [
    "REDACTION_MARKER",
    "Ambiguous",
    "Applied",
    "Edit",
    "EditError",
    "Hunk",
    "NoChange",
    "NoMatch",
    "Overlap",
    "Refused",
    "Stale",
    "Unfit",
    "apply_edits",
]

ECHO_LINES: Final = 80
ECHO_CHARACTERS: Final = 6_000
"""How much of the resulting diff the model sees."""
STALE_REGIONS: Final = 3

Done = TypeVar("Done")


class Stale(EditError):
    """The file is not what the model last saw. `data["seen"]` has the hash of what it is shown now."""


class _Stopped(ToolError):
    """The call was cancelled before anything was written."""

    error_class = "aborted"


class Replacement(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    old: str = Field(
        description="Text to replace, exactly as in the file, once in it; without read's line numbers. "
        "Empty: make a new file."
    )
    new: str = Field(description="Text to put there, complete and verbatim.")
    anchor: str | None = Field(
        None, description="A line of the file, such as a function's head: `old` is looked for in its block."
    )


class EditArguments(Arguments):
    path: str = Field(description="File, relative to the workspace.")
    edits: list[Replacement] = Field(
        min_length=1, description="Replacements in this file. All are applied, or none."
    )

    @field_validator("edits", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        """A single object, or a list sent as JSON text, is what small models often send."""
        if isinstance(value, str):
            try:
                value = orjson.loads(value)
            except orjson.JSONDecodeError:
                return value
        return [value] if isinstance(value, dict) else value


@dataclass(frozen=True, slots=True)
class _Prepared:
    content: Content | None
    path: str
    applied: Applied

    @property
    def change(self) -> FileChange:
        if self.content is None:
            return FileChange(self.path, None, self.applied.data)
        return FileChange(self.path, self.content.data, self.applied.data, self.content.mode)


class Edit(Tool):
    """Replace text in a file, or make a new file.

    `old` must be in the file exactly once: give whole lines, enough of them to be unique, with their
    indentation. Read the file first. Several changes of one file belong into one call; each `old` refers to
    the file as it is now. Nothing is written unless every replacement fits. The answer shows the
    resulting diff, or what to correct.
    """

    name = "edit"
    kind = "edit"
    Arguments = EditArguments

    async def propose(self, arguments: EditArguments, workspace: Workspace) -> Proposal:
        prepared = await asyncio.to_thread(_prepare, arguments, workspace)
        verb = "Create" if prepared.content is None else "Edit"
        line = min(hunk.line for hunk in prepared.applied.hunks)
        return Proposal(f"{verb} {prepared.path}", (prepared.path,), line, (prepared.change,))

    async def run(self, arguments: EditArguments, workspace: Workspace, progress: Progress) -> ToolResult:
        prepared = await asyncio.to_thread(_prepare, arguments, workspace)
        change = prepared.change
        if prepared.content is not None and prepared.content.unsaved:
            assert workspace.write_through is not None
            await workspace.write_through(
                prepared.path, prepared.applied.data.decode("utf-8", "surrogatepass")
            )
        else:
            mode = await _finished(lambda check: _write(workspace, prepared, check))
            change = FileChange(change.path, change.before, change.after, mode)
        seen = content_hash(prepared.applied.data)
        workspace.seen[prepared.path] = seen
        return _result(prepared, change, seen)


def _prepare(arguments: EditArguments, workspace: Workspace) -> _Prepared:
    """Everything but the write: the content, the checks, the edited bytes."""
    hunks = [Hunk(edit.old, edit.new, edit.anchor) for edit in arguments.edits]
    try:
        current = content(workspace, arguments.path)
    except NotFound:
        if len(hunks) == 1 and not hunks[0].old:
            return _Prepared(None, canonical(workspace, arguments.path), apply_edits(b"", hunks))
        if any(not hunk.old for hunk in hunks):
            raise EditError(
                "A new file takes one edit: an empty `old` and the whole content in `new`."
            ) from None
        raise missing(workspace, arguments.path) from None
    if current.unsaved and workspace.write_through is None:
        raise EnvironmentFault(
            f"{current.path} has unsaved changes in the editor, and this client cannot write through it. "
            "Ask the user to save the file, then read it again."
        )
    seen, now = workspace.seen.get(current.path), content_hash(current.data)
    if seen is not None and seen != now and any(hunk.old for hunk in hunks):
        workspace.seen[current.path] = now
        raise _stale(current, hunks, now)
    try:
        applied = apply_edits(current.data, hunks, only_exact=seen is None)
    except ToolError as error:
        raise type(error)(f"{current.path}: {error.message}", **error.data) from error
    return _Prepared(current, current.path, applied)


def _stale(current: Content, hunks: Sequence[Hunk], now: str) -> Stale:
    try:
        text = Text.decode(current.data)
        regions = [_region(text, hunk) for hunk in hunks[:STALE_REGIONS]]
    except Binary as binary:
        regions = [f"It is now binary ({binary.kind})."]
    shown = "\n…\n".join(dict.fromkeys(region for region in regions if region))
    return Stale(
        f"{current.path} has changed since you last saw it; nothing was written. It is now:\n"
        f"{shown or '(nothing there resembles `old`: read the file)'}\n"
        "If the edit still makes sense, repeat it against this text.",
        failures=[{"reason": "stale"}],
        seen={current.path: now},
    )


def _region(text: Text, hunk: Hunk) -> str:
    flat, old = text.flat, text.normal(hunk.old)
    window = Window(0, len(flat))
    found = find(flat, old, window)
    if len(found.matches) == 1:
        match = found.matches[0]
        first, last = line_number(flat, match.start), line_number(flat, max(match.end - 1, match.start))
        return excerpt(flat, max(first - 2, 1), last + 2)
    near = nearest(flat, old, window)
    if near is not None:
        return near.excerpt
    return excerpt(flat, 1, SHOWN_LINES) if flat.count("\n") <= SHOWN_LINES else ""


def _write(workspace: Workspace, prepared: _Prepared, check: Callable[[], None]) -> int:
    data = prepared.applied.data
    if prepared.content is None:
        return create(workspace.root, prepared.path, data, before_commit=check).mode
    try:
        expected = prepared.content.data
        return replace(workspace.root, prepared.path, data, expected=expected, before_commit=check).mode
    except Changed as error:
        raise Stale(f"{error.message} Nothing was written.", failures=[{"reason": "stale"}]) from error
    except NotFound as error:
        raise Stale(f"{prepared.path} was deleted meanwhile; nothing was written.") from error


async def _finished(work: Callable[[Callable[[], None]], Done]) -> Done:
    """Run a write in a thread. Cancelled before its last step, nothing is written and the cancellation
    goes on; after it, the result is returned first, so that what was written is in the log, and the
    cancellation is delivered at the caller's next await."""
    stopped = threading.Event()

    def check() -> None:
        if stopped.is_set():
            raise _Stopped("The edit was cancelled; nothing was written.")

    thread = asyncio.ensure_future(asyncio.to_thread(work, check))
    cancelled = False
    while not thread.done():
        try:
            await asyncio.wait({thread})
        except asyncio.CancelledError:
            cancelled = True
            stopped.set()
    if cancelled:
        if thread.exception() is not None:
            raise asyncio.CancelledError
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()
        task.cancel()
    return thread.result()


def _result(prepared: _Prepared, change: FileChange, seen: str) -> ToolResult:
    diff, added, removed = prepared.applied.diff(prepared.path, context=2)
    tiers = [hunk.tier for hunk in prepared.applied.hunks]
    if prepared.content is None:
        lines = [f"Created {prepared.path} ({added} lines)."]
    else:
        lines = [f"Edited {prepared.path} (+{added} -{removed})."]
        lines += [
            f"Edit {hunk.edit} matched by {hunk.tier}, not exactly: check the diff."
            for hunk in prepared.applied.hunks
            if hunk.tier != "exact"
        ]
        if prepared.content.links > 1 and not prepared.content.unsaved:
            lines.append("It had other hard links; they keep the old content.")
        lines.append(_echo(diff))
    data = {"tiers": tiers, "added": added, "removed": removed, "encoding": prepared.applied.encoding}
    if prepared.content is not None and prepared.content.unsaved:
        data["through"] = "editor"
    return ToolResult("\n".join(lines), (change,), seen={prepared.path: seen}, data=data)


def _echo(diff: str) -> str:
    """The hunks of a diff, bounded, for the model."""
    lines = [visible(line.removesuffix("\r"), 400) for line in diff.split("\n")[2:]]
    shown: list[str] = []
    size = 0
    for line in lines[:ECHO_LINES]:
        size += len(line) + 1
        if size > ECHO_CHARACTERS:
            break
        shown.append(line)
    rest = len(lines) - len(shown)
    return "\n".join(shown).rstrip("\n") + (f"\n… {rest} more lines of diff" if rest else "")
