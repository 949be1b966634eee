"""The `apply_patch` tool: several files changed by one patch, all of it or nothing."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pydantic import Field

from tools.applying import Applied, EditError, require_writable
from tools.contents import Content, canonical, content, missing
from tools.diff import unified_diff
from tools.echo import echo
from tools.errors import EnvironmentFault, ToolError
from tools.files import Changed, NotFound, stat
from tools.finishing import finished
from tools.notebook import through_cells
from tools.patch import BadPatch, Section, parse
from tools.patch.fitting import fitted
from tools.protected import require_unprotected
from tools.result import FileChange, Proposal, ToolResult
from tools.stale import Stale
from tools.tool import Arguments, Progress, Tool
from tools.transaction import FileWrite, Transaction, recover
from tools.workspace import Workspace, content_hash


class ApplyPatchArguments(Arguments):
    patch: str = Field(
        min_length=1, description="The whole patch: *** Begin Patch … *** End Patch, or a unified diff."
    )


@dataclass(frozen=True, slots=True)
class _Planned:
    """What happens to one file. `target` is its new path, `after` its new content (None: deleted)."""

    path: str
    target: str
    before: Content | None
    after: bytes | None
    mode: int | None = None
    applied: Applied | None = None

    @property
    def through(self) -> bool:
        return self.before is not None and self.before.unsaved

    @property
    def writes(self) -> Iterable[FileWrite]:
        before = None if self.before is None else self.before.data
        if self.target == self.path:
            yield FileWrite(self.path, before, self.after, self.mode)
            return
        yield FileWrite(self.target, None, self.after, self.mode, source=self.path)
        yield FileWrite(self.path, before, None)


class ApplyPatch(Tool):
    """Change several files by one patch: all of it is applied, or nothing.

    Either `*** Begin Patch`, sections `*** Add File: PATH`, `*** Delete File: PATH`, `*** Update File: PATH`
    (then `*** Move to: PATH` to rename it), `*** End Patch`; or a unified diff. Lines of an update begin
    with a space (context, as in the file), - or +; `@@ LINE` names a line that the place is in or below,
    such as a function's head; `*** End of File` says that the place ends the file. Places are found by
    their lines, of which there must be enough to be unique; line numbers may be wrong. Read files first.
    """

    name = "apply_patch"
    kind = "edit"
    Arguments = ApplyPatchArguments

    async def propose(self, arguments: ApplyPatchArguments, workspace: Workspace) -> Proposal:
        planned = await _prepared(arguments, workspace)
        paths = tuple(dict.fromkeys(path for one in planned for path in (one.path, one.target)))
        title = f"Patch {paths[0]}" if len(planned) == 1 else f"Patch {len(planned)} files"
        line = planned[0].applied.hunks[0].line if planned[0].applied else None
        return Proposal(title, paths, line, tuple(_changes(planned, {})))

    async def run(
        self, arguments: ApplyPatchArguments, workspace: Workspace, progress: Progress
    ) -> ToolResult:
        planned = await _prepared(arguments, workspace)
        loop = asyncio.get_running_loop()
        result = await finished(lambda check: _result(planned, _apply(workspace, planned, check, loop)))
        for one in planned:
            workspace.seen.pop(one.path, None)
        workspace.seen.update(result.seen)
        return result


async def _prepared(arguments: ApplyPatchArguments, workspace: Workspace) -> list[_Planned]:
    sections = await asyncio.to_thread(parse, arguments.patch)
    if workspace.refresh is not None:
        for section in sections:
            await workspace.refresh(section.path)
    return await asyncio.to_thread(_plan, sections, workspace)


def _plan(sections: Sequence[Section], workspace: Workspace) -> list[_Planned]:
    """Everything but the writes: each file's new content, or every reason why it cannot be."""
    recover(workspace.root)
    planned: list[_Planned] = []
    failures: list[tuple[str, ToolError]] = []
    for path, group in _by_file(sections, workspace).items():
        try:
            planned.append(_one(path, group, workspace))
        except ToolError as error:
            failures.append((path, error))
    if failures:
        raise _combined(failures, len(planned) + len(failures))
    names = [name for one in planned for name in {one.path, one.target}]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadPatch(f"The patch changes {', '.join(twice)} in two ways. Give each file one section.")
    return planned


def _by_file(sections: Sequence[Section], workspace: Workspace) -> dict[str, list[Section]]:
    """Sections by the path that they are about, in the patch's order."""
    groups: dict[str, list[Section]] = {}
    for section in sections:
        path = section.path
        if (
            section.plain is not None
            and not _is_there(workspace, path)
            and (section.kind != "add" and _is_there(workspace, section.plain))
        ):
            path = section.plain
        groups.setdefault(path, []).append(section)
    return groups


def _is_there(workspace: Workspace, path: str) -> bool:
    try:
        return stat(workspace.root, path) is not None
    except ToolError:
        return False


def _one(path: str, group: list[Section], workspace: Workspace) -> _Planned:
    first = group[0]
    if len(group) > 1 and not all(section.only_edits for section in group):
        raise BadPatch(f"{path} is in several sections, not all of which are updates.", group[1].number)
    if first.kind == "add":
        return _added(path, first, workspace)
    current = _current(path, workspace)
    unseen = current.path not in workspace.seen
    chunks = [chunk for section in group for chunk in section.chunks]
    if first.kind == "delete":
        if current.unsaved:
            raise _unsaved(current.path)
        if chunks and fitted(current.data, chunks, unseen).data:
            raise EditError("The diff deletes the file but does not have all of its lines. Read it again.")
        return _Planned(current.path, current.path, current, None)
    applied, after = None, current.data
    if chunks:
        applied, after = through_cells(current.path, current.data, lambda data: fitted(data, chunks, unseen))
    mode = None if first.mode is None else _executable(current.mode or 0o644, bool(first.mode & 0o111))
    target = current.path
    if first.target is not None:
        target = _free(first.target, workspace)
        if current.unsaved:
            raise _unsaved(current.path)
    elif current.unsaved and workspace.write_through is None:
        raise _unsaved(current.path)
    if target == current.path and after == current.data and mode in (None, current.mode):
        raise EditError("The file is already as the patch would make it.")
    return _Planned(current.path, target, current, after, mode, applied)


def _added(path: str, section: Section, workspace: Workspace) -> _Planned:
    name = _free(path, workspace)
    text = section.added
    require_writable("", text, "")
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError:
        raise BadPatch(
            "The new file holds a lone surrogate, which no file can hold.", section.number
        ) from None
    return _Planned(name, name, None, data, 0o755 if (section.mode or 0) & 0o111 else None)


def _current(path: str, workspace: Workspace) -> Content:
    try:
        current = content(workspace, path)
    except NotFound:
        raise missing(workspace, path) from None
    require_unprotected(current.path)
    seen, now = workspace.seen.get(current.path), content_hash(current.data)
    if seen is not None and seen != now:
        raise Stale(
            f"{current.path} has changed since you last saw it. Read it again, then repeat the patch.",
            failures=[{"reason": "stale"}],
        )
    return current


def _free(path: str, workspace: Workspace) -> str:
    """The canonical form of a path where nothing is."""
    there = stat(workspace.root, path)
    name = canonical(workspace, path)
    require_unprotected(name)
    if there is not None or name in workspace.buffers:
        raise EditError(f"{name} exists already. Update it instead, or delete it first.")
    return name


def _unsaved(path: str) -> EnvironmentFault:
    return EnvironmentFault(
        f"{path} has unsaved changes in the editor, which this patch cannot be written through. Ask the "
        "user to save the file, then read it again."
    )


def _executable(mode: int, wanted: bool) -> int:
    """Permission bits with or without execution, for whoever may read."""
    return mode | (mode & 0o444) >> 2 if wanted else mode & ~0o111


def _combined(failures: list[tuple[str, ToolError]], count: int) -> ToolError:
    first = failures[0][1]
    lines = [_about(path, error.message) for path, error in failures]
    if count == 1:
        return first if isinstance(first, BadPatch) else type(first)(_unwritten(lines[0]), **first.data)
    facts = [{"path": path, **one} for path, error in failures for one in error.data.get("failures", [{}])]
    lines.insert(0, f"{len(failures)} of {count} files cannot be patched; nothing was written to any.")
    kind = EditError if isinstance(first, BadPatch) else type(first)
    return kind("\n".join(lines), failures=facts)


def _about(path: str, message: str) -> str:
    return message if message.startswith(path) or repr(path) in message else f"{path}: {message}"


def _unwritten(message: str) -> str:
    return message if "othing was written" in message else f"{message}\nNothing was written."


def _apply(
    workspace: Workspace,
    planned: Sequence[_Planned],
    check: Callable[[], None],
    loop: asyncio.AbstractEventLoop,
) -> dict[str, int]:
    """Write to disk, then through the editors; both are undone where one fails. The modes by path."""
    transaction = Transaction(
        workspace.root, [write for one in planned if not one.through for write in one.writes]
    )
    try:
        transaction.apply(check)
    except Changed as error:
        raise Stale(f"{error.message} Nothing was written.", failures=[{"reason": "stale"}]) from error
    sent: list[_Planned] = []
    try:
        for one in planned:
            if one.through and one.after is not None:
                sent.append(one)
                _send(workspace, one.path, one.after, loop)
    except BaseException:
        transaction.undo()
        for one in reversed(sent[:-1]):
            assert one.before is not None
            try:
                _send(workspace, one.path, one.before.data, loop)
            except ToolError:
                continue  # this editor is gone too; the others still get their text back
        raise
    transaction.commit()
    return transaction.modes


def _send(workspace: Workspace, path: str, data: bytes, loop: asyncio.AbstractEventLoop) -> None:
    assert workspace.write_through is not None
    text = data.decode("utf-8", "surrogatepass")

    async def write() -> None:
        assert workspace.write_through is not None
        await workspace.write_through(path, text)

    asyncio.run_coroutine_threadsafe(write(), loop).result()


def _changes(planned: Sequence[_Planned], modes: dict[str, int]) -> Iterable[FileChange]:
    for one in planned:
        before = None if one.before is None else one.before.data
        old_mode = None if one.before is None else one.before.mode
        mode = modes.get(one.target, one.mode or old_mode)
        if one.target != one.path:
            yield FileChange(one.path, before, None)
            yield FileChange(one.target, None, one.after, mode)
        else:
            yield FileChange(one.path, before, one.after, mode)


def _result(planned: Sequence[_Planned], modes: dict[str, int]) -> ToolResult:
    lines: list[str] = []
    added = removed = 0
    for one in planned:
        before = None if one.before is None else one.before.data
        name = one.path if one.target == one.path else f"{one.path} → {one.target}"
        if one.applied is not None and before:
            diff, plus, minus = one.applied.diff(one.target, context=2)
        else:
            diff, plus, minus = unified_diff(before, one.after, one.target)
        added, removed = added + plus, removed + minus
        verb = "Created" if before is None else "Deleted" if one.after is None else "Edited"
        verb = "Moved" if one.target != one.path else verb
        lines.append(f"{verb} {name} (+{plus} -{minus}).")
        if one.applied is not None and one.after is not None:
            lines += [
                f"Place {hunk.edit} matched by {hunk.tier}, not exactly: check the diff."
                for hunk in one.applied.hunks
                if hunk.tier != "exact"
            ]
            lines.append(echo(diff, len(planned)))
        if one.before is not None and one.before.links > 1 and one.after is not None and not one.through:
            lines.append("It had other hard links; they keep the old content.")
    seen = {one.target: content_hash(one.after) for one in planned if one.after is not None}
    data = {
        "files": len(planned),
        "added": added,
        "removed": removed,
        "tiers": {one.target: [hunk.tier for hunk in one.applied.hunks] for one in planned if one.applied},
        "moved": {one.path: one.target for one in planned if one.target != one.path},
    }
    if through := [one.path for one in planned if one.through]:
        data["through"] = through
    return ToolResult("\n".join(lines), tuple(_changes(planned, modes)), seen=seen, data=data)
