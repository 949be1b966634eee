"""The `diagnostics` tool: what the project's checkers say, and what of it is new in this turn."""

import asyncio
import itertools
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Final

from pydantic import Field

from tools.confinement import workspace_path
from tools.contents import content
from tools.diagnostics.checkers import CHECKERS, Checker
from tools.diagnostics.choice import choose
from tools.diagnostics.finding import Finding, added, sort
from tools.diagnostics.running import Run, check, check_text, program, signature
from tools.errors import InvalidArguments, ToolError
from tools.files import stat
from tools.result import Proposal, ToolResult
from tools.sandbox import Sandbox
from tools.shell_session import ShellSession
from tools.tool import Arguments, Kind, Progress, Tool
from tools.walking import Walk, files_below
from tools.workspace import Workspace

SHOWN: Final = 50
_KEPT: Final = 200
"""Findings that are kept with the result."""
_FILES: Final = 2_000
_WALK_S: Final = 5.0
_PER_FILE: Final = 40
"""Changed files whose earlier text is checked for what is new."""


class DiagnosticsArguments(Arguments):
    paths: list[str] | None = Field(
        default=None,
        description="Files or folders (default: the files changed in this turn).",
        max_length=200,
    )


class Diagnostics(Tool):
    """Ask the project's own checkers (ruff, pyright, mypy, tsc, eslint, go vet, cargo check, shellcheck).

    Says for each whether its answer is about the present files, and which findings are new in this turn.
    "timed out", "failed" and "stale" mean that nothing is known: they never mean clean.
    """

    name: ClassVar[str] = "diagnostics"
    kind: ClassVar[Kind] = "execute"
    Arguments = DiagnosticsArguments

    async def propose(self, arguments: DiagnosticsArguments, workspace: Workspace) -> Proposal:
        paths = await asyncio.to_thread(_named, workspace, arguments.paths or [])
        about = ", ".join(paths[:3]) + ("…" if len(paths) > 3 else "") or "what changed in this turn"
        return Proposal(f"Check {about}", tuple(paths[:20]))

    async def run(
        self, arguments: DiagnosticsArguments, workspace: Workspace, progress: Progress
    ) -> ToolResult:
        history = workspace.history
        before = await history.changed() if history is not None else {}
        paths, left_out = await asyncio.to_thread(_files, workspace, arguments.paths, before)
        if not paths:
            return ToolResult("Nothing to check: no file was changed in this turn. Name files or folders.")
        chosen = await asyncio.to_thread(choose, workspace.root, paths)
        sandbox = await ShellSession.of(workspace).sandbox()
        await sandbox.restore_mounts()
        runs: list[Run] = []
        missing: list[str] = []
        for checker, folder, files in chosen:
            found = await program(sandbox, checker, folder)
            if found is None:
                missing.append(checker.name)
                continue
            progress(f"{checker.name}…\n")
            runs.append(await _run(workspace, sandbox, checker, found, folder, files, before))
        named = arguments.paths is not None
        return _result(runs, named, sorted(set(missing)), set(before), len(paths), left_out, sandbox.tier)


def _named(workspace: Workspace, paths: Sequence[str]) -> list[str]:
    """Names in the workspace.

    Raises:
        InvalidArguments: one of them is not there.
    """
    names = []
    for path in paths:
        name = workspace_path(workspace.root, path)
        if stat(workspace.root, path) is None:
            raise InvalidArguments(f"There is no {path}; name files or folders of the workspace.")
        names.append(name)
    return names


def _files(
    workspace: Workspace, paths: Sequence[str] | None, before: Mapping[str, bytes | None]
) -> tuple[list[str], int]:
    """The files to check, and how many more there would be."""
    root = workspace.root
    if paths is None:
        names = [path for path in before if (entry := stat(root, path)) is not None and entry.kind == "file"]
        return names[:_FILES], max(len(names) - _FILES, 0)
    found: dict[str, None] = {}
    for name in _named(workspace, paths):
        entry = stat(root, name)
        if entry is not None and entry.kind == "directory":
            found.update(dict.fromkeys(_below(root, entry.path)))
        else:
            found[name] = None
    listed = list(found)
    return listed[:_FILES], max(len(listed) - _FILES, 0)


def _below(root: Path, folder: str) -> list[str]:
    """Files of a folder that some checker is for."""
    suffixes = {suffix for checker in CHECKERS for suffix in checker.suffixes}
    deadline = time.monotonic() + _WALK_S
    found = files_below(root, folder, False, deadline, threading.Event(), Walk())
    wanted = (path for path in found if PurePosixPath(path).suffix.lower() in suffixes)
    prefix = PurePosixPath(folder)
    return [str(prefix / path) for path in itertools.islice(wanted, _FILES + 1)]


async def _run(
    workspace: Workspace,
    sandbox: Sandbox,
    checker: Checker,
    found: str,
    folder: Path,
    files: list[str],
    before: Mapping[str, bytes | None],
) -> Run:
    watched = sorted({*files, *before})
    began = await asyncio.to_thread(signature, workspace.root, watched)
    state, findings, why = await check(sandbox, checker, found, folder, files)
    run = Run(checker, folder, state, tuple(findings), why)
    if not run.known:
        return run
    unsaved = await asyncio.to_thread(_unsaved, workspace, files)
    if await asyncio.to_thread(signature, workspace.root, watched) != began:
        return replace(run, state="stale", why="files changed while it ran; ask again")
    if unsaved:
        return replace(run, state="stale", why=f"the editor holds unsaved text of {', '.join(unsaved[:5])}")
    if workspace.history is None:
        new = None
    elif checker.scope == "file":
        new = await _new_in_files(sandbox, checker, found, folder, files, run.findings, before)
    else:
        new = await _new_in_project(workspace, run, before)
    return replace(run, new=None if new is None else tuple(new))


async def _new_in_project(
    workspace: Workspace, run: Run, before: Mapping[str, bytes | None]
) -> list[Finding] | None:
    """What an earlier run on the turn's first state did not show. Files of this turn need none."""
    history = workspace.history
    assert history is not None
    now, memory = await history.now(), workspace.diagnosed
    memory.keep(run.label, run.folder, now, run.findings)
    if now is not None and now == history.turn_tree:
        return []
    new = memory.new(run.label, run.folder, history.turn_tree, run.findings)
    if new is None and all(before.get(finding.path, b"") is None for finding in run.findings):
        return list(run.findings)
    return new


def _unsaved(workspace: Workspace, files: Sequence[str]) -> list[str]:
    found = []
    for path in files:
        if path in workspace.buffers:
            try:
                if content(workspace, path).unsaved:
                    found.append(path)
            except ToolError:
                found.append(path)
    return found


async def _new_in_files(
    sandbox: Sandbox,
    checker: Checker,
    found: str,
    folder: Path,
    files: list[str],
    findings: Sequence[Finding],
    before: Mapping[str, bytes | None],
) -> list[Finding] | None:
    """What the files' text of the turn's beginning did not show: each is checked in its place."""
    changed = [path for path in files if path in before]
    if not changed:
        return []
    if checker.stdin is None or len(changed) > _PER_FILE:
        return None
    earlier: list[Finding] = []
    for path in changed:
        text = before[path]
        if text is None:
            continue
        state, known, _ = await check_text(sandbox, checker, found, folder, path, text)
        if state not in ("clean", "fresh"):
            return None
        earlier += [finding._replace(path=path) for finding in known]
    return added([finding for finding in findings if finding.path in changed], earlier)


def _result(
    runs: Sequence[Run],
    named: bool,
    missing: Sequence[str],
    changed: set[str],
    files: int,
    left_out: int,
    tier: str,
) -> ToolResult:
    lines: list[str] = []
    room = SHOWN
    for run in runs:
        lines.append(_headline(run))
        new = sort(run.new or (), changed)
        marked = [f"  {finding.shown()} [new]" for finding in new]
        if run.new is None or named:  # whoever names files wants to know all that is wrong with them
            marked += [f"  {finding.shown()}" for finding in sort(_others(run.findings, new), changed)]
        elif old := len(run.findings) - len(new):
            marked.append(f"  ({old} were there before this turn)")
        lines += marked[:room]
        if len(marked) > room:
            lines.append(f"  … {len(marked) - room} more are not shown")
        room = max(room - len(marked), 0)
    if missing:
        lines.append(f"Not installed here: {', '.join(missing)}.")
    if left_out:
        lines.append(f"{left_out} more files were not checked; name fewer.")
    if not runs:
        lines.insert(
            0, f"No checker is known for these {files} files." if not missing else "Nothing was run."
        )
    data: dict[str, Any] = {
        "tier": tier,
        "runs": [_facts(run) for run in runs],
        "missing": list(missing),
        "files": files,
    }
    failed = bool(runs) and not any(run.known for run in runs)
    return ToolResult("\n".join(lines), data=data, error="environment" if failed else None)


def _others(findings: Sequence[Finding], new: Sequence[Finding]) -> list[Finding]:
    left = Counter(new)
    found = []
    for finding in findings:
        if left[finding] > 0:
            left[finding] -= 1
        else:
            found.append(finding)
    return found


def _headline(run: Run) -> str:
    if not run.known:
        return f"{run.label}: {run.state.replace('_', ' ')}: {run.why}. Nothing is known."
    count = _counted(run.findings)
    if run.state == "stale":
        return f"{run.label}: stale ({run.why}): {count}"
    if run.state == "clean":
        return f"{run.label}: clean"
    if run.new is None:
        return f"{run.label}: {count}; which of them are new in this turn is not known"
    return f"{run.label}: {len(run.new)} new in this turn, of {count}"


def _counted(findings: Sequence[Finding]) -> str:
    if not findings:
        return "no findings"
    kinds = {
        kind: sum(finding.severity == kind for finding in findings) for kind in ("error", "warning", "info")
    }
    return ", ".join(f"{number} {kind}{'s' * (number > 1)}" for kind, number in kinds.items() if number)


def _facts(run: Run) -> dict[str, Any]:
    kept = run.findings if run.new is None else run.new
    return {
        "checker": run.label,
        "state": run.state,
        "why": run.why,
        "found": len(run.findings),
        "new": None if run.new is None else len(run.new),
        "findings": [finding._asdict() for finding in kept[:_KEPT]],
    }
