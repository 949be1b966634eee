"""The `edit` tool: replaces text in one file, in one transaction."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
from tools.contents import Content, canonical, change_to, content, missing
from tools.echo import echo
from tools.errors import EnvironmentFault, ToolError
from tools.files import Changed, NotFound, create, replace
from tools.finishing import finished
from tools.notebook import through_cells
from tools.protected import require_unprotected
from tools.refusals import REDACTION_MARKER
from tools.result import FileChange, Proposal, ToolResult
from tools.stale import Stale, stale
from tools.symbol_edit import by_symbol
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


class Replacement(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    old: str = Field(
        description="Text to replace, exactly as in the file, once in it; without read's line numbers. "
        "Empty: make a new file or, with an anchor, replace the definition it names."
    )
    new: str = Field(description="Text to put there, complete and verbatim.")
    anchor: str | None = Field(
        None,
        description="A line of the file, such as a function's head: `old` is looked for in its block. "
        "With an empty `old`: the definition to replace whole, such as Class.method.",
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
    data: bytes

    @property
    def change(self) -> FileChange:
        return change_to(self.content, self.path, self.data)


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
        arguments = await _written_out(arguments, workspace)
        prepared = await asyncio.to_thread(_prepare, arguments, workspace)
        verb = "Create" if prepared.content is None else "Edit"
        line = min(hunk.line for hunk in prepared.applied.hunks)
        return Proposal(f"{verb} {prepared.path}", (prepared.path,), line, (prepared.change,))

    async def run(self, arguments: EditArguments, workspace: Workspace, progress: Progress) -> ToolResult:
        arguments = await _written_out(arguments, workspace)
        prepared = await asyncio.to_thread(_prepare, arguments, workspace)
        change = prepared.change
        if prepared.content is not None and prepared.content.unsaved:
            assert workspace.write_through is not None
            await workspace.write_through(prepared.path, prepared.data.decode("utf-8", "surrogatepass"))
        else:
            mode = await finished(lambda check: _write(workspace, prepared, check))
            change = FileChange(change.path, change.before, change.after, mode)
        seen = content_hash(prepared.data)
        workspace.seen[prepared.path] = seen
        return _result(prepared, change, seen)


async def _written_out(arguments: EditArguments, workspace: Workspace) -> EditArguments:
    """The arguments with definitions that are named, not quoted, as text."""
    edits = await by_symbol(arguments.edits, arguments.path, workspace)
    return arguments.model_copy(update={"edits": edits})


def _prepare(arguments: EditArguments, workspace: Workspace) -> _Prepared:
    """Everything but the write: the content, the checks, the edited bytes."""
    hunks = [Hunk(edit.old, edit.new, edit.anchor) for edit in arguments.edits]
    try:
        current = content(workspace, arguments.path)
    except NotFound:
        if len(hunks) == 1 and not hunks[0].old:
            path = canonical(workspace, arguments.path)
            require_unprotected(path)
            applied = apply_edits(b"", hunks)
            return _Prepared(None, path, applied, applied.data)
        if any(not hunk.old for hunk in hunks):
            raise EditError(
                "A new file takes one edit: an empty `old` and the whole content in `new`."
            ) from None
        raise missing(workspace, arguments.path) from None
    require_unprotected(current.path)
    if current.unsaved and workspace.write_through is None:
        raise EnvironmentFault(
            f"{current.path} has unsaved changes in the editor, and this client cannot write through it. "
            "Ask the user to save the file, then read it again."
        )
    seen, now = workspace.seen.get(current.path), content_hash(current.data)
    if seen is not None and seen != now and any(hunk.old for hunk in hunks):
        workspace.seen[current.path] = now
        raise stale(current, hunks, now)
    try:
        applied, data = through_cells(
            current.path, current.data, lambda data: apply_edits(data, hunks, only_exact=seen is None)
        )
    except ToolError as error:
        raise type(error)(f"{current.path}: {error.message}", **error.data) from error
    return _Prepared(current, current.path, applied, data)


def _write(workspace: Workspace, prepared: _Prepared, check: Callable[[], None]) -> int:
    data = prepared.data
    if prepared.content is None:
        return create(workspace.root, prepared.path, data, before_commit=check).mode
    try:
        expected = prepared.content.data
        return replace(workspace.root, prepared.path, data, expected=expected, before_commit=check).mode
    except Changed as error:
        raise Stale(f"{error.message} Nothing was written.", failures=[{"reason": "stale"}]) from error
    except NotFound as error:
        raise Stale(f"{prepared.path} was deleted meanwhile; nothing was written.") from error


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
        lines.append(echo(diff))
    data = {"tiers": tiers, "added": added, "removed": removed, "encoding": prepared.applied.encoding}
    if prepared.content is not None and prepared.content.unsaved:
        data["through"] = "editor"
    return ToolResult("\n".join(lines), (change,), seen={prepared.path: seen}, data=data)
