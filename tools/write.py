"""The `write` tool: a whole file, new or in the place of one that the model has seen."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import Field

from tools.applying import EditError, NoChange, Refused, Unfit
from tools.contents import Content, canonical, change_to, content
from tools.diff import unified_diff
from tools.echo import echo
from tools.encodings import UTF8, Binary, Encoding
from tools.errors import EnvironmentFault
from tools.files import MAX_FILE_BYTES, Changed, NotFound, create, replace, too_large
from tools.finishing import finished
from tools.protected import require_unprotected
from tools.refusals import omission, redaction
from tools.result import FileChange, Proposal, ToolResult
from tools.stale import Stale
from tools.text import Text
from tools.tool import Arguments, Progress, Tool
from tools.workspace import Workspace, content_hash


class Unseen(EditError):
    """The file has content that the model has not seen and would overwrite."""


class WriteArguments(Arguments):
    path: str = Field(description="File, relative to the workspace. Missing folders are made.")
    content: str = Field(description="The whole content, complete and verbatim.")


@dataclass(frozen=True, slots=True)
class _Prepared:
    content: Content | None
    path: str
    data: bytes
    encoding: str

    @property
    def change(self) -> FileChange:
        return change_to(self.content, self.path, self.data)


class Write(Tool):
    """Write a whole file: a new one, or in the place of one whose present content you have read.

    To change a part of a file use edit. A file that is replaced keeps its encoding, its mode, and its line
    endings where they are all the same.
    """

    name = "write"
    kind = "edit"
    Arguments = WriteArguments

    async def propose(self, arguments: WriteArguments, workspace: Workspace) -> Proposal:
        prepared = await asyncio.to_thread(_prepare, arguments, workspace)
        verb = "Create" if prepared.content is None else "Replace"
        return Proposal(f"{verb} {prepared.path}", (prepared.path,), 1, (prepared.change,))

    async def run(self, arguments: WriteArguments, workspace: Workspace, progress: Progress) -> ToolResult:
        prepared = await asyncio.to_thread(_prepare, arguments, workspace)
        if prepared.content is not None and prepared.content.unsaved:
            assert workspace.write_through is not None
            await workspace.write_through(prepared.path, prepared.data.decode("utf-8", "surrogatepass"))
            result = _result(prepared, prepared.change.mode)
        else:
            result = await finished(lambda check: _result(prepared, _write(workspace, prepared, check)))
        workspace.seen.update(result.seen)
        return result


def _prepare(arguments: WriteArguments, workspace: Workspace) -> _Prepared:
    """Everything but the write."""
    new = arguments.content
    try:
        current = content(workspace, arguments.path)
    except NotFound:
        path = canonical(workspace, arguments.path)
        require_unprotected(path)
        _require_writable("", new)
        return _Prepared(None, path, _encoded(UTF8, new), "UTF-8")
    require_unprotected(current.path)
    if current.unsaved and workspace.write_through is None:
        raise EnvironmentFault(
            f"{current.path} has unsaved changes in the editor, and this client cannot write through it. "
            "Ask the user to save the file, then read it again."
        )
    seen, now = workspace.seen.get(current.path), content_hash(current.data)
    if seen is None and current.data:
        raise Unseen(
            f"{current.path} exists and you have not read it. Read it first; then replace it, or change a "
            "part of it with edit.",
            failures=[{"reason": "unseen"}],
        )
    if seen is not None and seen != now:
        raise Stale(
            f"{current.path} has changed since you last saw it; nothing was written. Read it again first.",
            failures=[{"reason": "stale"}],
        )
    try:
        text = Text.decode(current.data)
    except Binary as binary:
        raise Unfit(f"{current.path} is binary ({binary.kind}); it is not replaced by text.") from binary
    _require_writable(text.body, new)
    data = text.encoding.bom + _encoded(text.encoding, _with_endings(text, new.removeprefix("\ufeff")))
    if data == current.data:
        raise NoChange(f"{current.path} already holds exactly this. Nothing was written.")
    return _Prepared(current, current.path, data, text.encoding.name)


def _require_writable(old: str, new: str) -> None:
    """Refuse what must not be written."""
    if "\0" in new:
        raise Refused("`content` holds a NUL character, which would make the file binary.")
    placeholder = omission(old, new)
    if placeholder is not None:
        raise Refused(
            f"`content` has the placeholder {placeholder[:120]!r} for text left out. Nothing fills it in: "
            "write the whole content, or change a part of the file with edit.",
            failures=[{"reason": "omission", "line": placeholder}],
        )
    marker = redaction(new, old)
    if marker is not None:
        raise Refused(
            f"`content` would write the redaction marker {marker} into the file. The real value was hidden "
            "from you and is still there: change the lines around it with edit.",
            failures=[{"reason": "redaction_marker"}],
        )


def _with_endings(text: Text, new: str) -> str:
    """`new` with the line endings of a file that has only one kind of them; else as it was sent."""
    if "\r" in new or text.ending == "\n":
        return new
    rest = text.body.replace(text.ending, "")
    return new if "\n" in rest or "\r" in rest else new.replace("\n", text.ending)


def _encoded(encoding: Encoding, text: str) -> bytes:
    if encoding.ascii_only or encoding.errors != "strict":
        encoding.check(text)
    try:
        data = text.encode(encoding.codec)
    except UnicodeEncodeError as error:
        if encoding is UTF8:
            raise Refused("`content` holds a lone surrogate, which no file can hold as text.") from error
        encoding.check(text)
        raise
    if len(data) > MAX_FILE_BYTES:
        raise too_large("The content", len(data), MAX_FILE_BYTES)
    return data


def _write(workspace: Workspace, prepared: _Prepared, check: Callable[[], None]) -> int:
    try:
        if prepared.content is None:
            return create(workspace.root, prepared.path, prepared.data, before_commit=check).mode
        expected = prepared.content.data
        return replace(
            workspace.root, prepared.path, prepared.data, expected=expected, before_commit=check
        ).mode
    except Changed as error:
        raise Stale(f"{error.message} Nothing was written.", failures=[{"reason": "stale"}]) from error
    except NotFound as error:
        raise Stale(f"{prepared.path} was deleted meanwhile; nothing was written.") from error


def _result(prepared: _Prepared, mode: int | None) -> ToolResult:
    change = FileChange(prepared.path, prepared.change.before, prepared.data, mode)
    diff, added, removed = unified_diff(change.before, change.after, prepared.path)
    data = {"added": added, "removed": removed, "encoding": prepared.encoding}
    if prepared.content is None:
        lines = [f"Created {prepared.path} ({added} line{'s' * (added != 1)})."]
    else:
        lines = [f"Replaced {prepared.path} (+{added} -{removed})."]
        if prepared.content.unsaved:
            data["through"] = "editor"
        elif prepared.content.links > 1:
            lines.append("It had other hard links; they keep the old content.")
        lines.append(echo(diff))
    return ToolResult(
        "\n".join(lines), (change,), seen={prepared.path: content_hash(prepared.data)}, data=data
    )
