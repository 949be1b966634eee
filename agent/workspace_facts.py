"""What a turn starts from: the git state and the environment of the workspace, as one `workspace` event.

Tasks are made from logged sessions, so a later reader must be able to rebuild the tree the agent saw:
base commit, branch, status, the dirty diff, submodules, versions of the tools at hand.
"""

import asyncio
import logging
import os
import platform
import time
from typing import Any

from agent.events import BlobRef, WorkspaceState
from agent.session import Session
from tools.errors import ToolError
from tools.files import read_bytes
from tools.sandbox import Sandbox
from tools.shell_session import ShellSession
from tools.workspace import Workspace, content_hash

log = logging.getLogger(__name__)

DIFF_LIMIT = 4 << 20
"""Bytes of the dirty diff that are kept."""
TIMEOUT_S = 10.0

GIT = ("git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "--no-optional-locks")
LOCKFILES = (
    "uv.lock",
    "poetry.lock",
    "requirements.txt",
    "package-lock.json",
    "pnpm-lock.yaml",
    "Cargo.lock",
)

Gathered = tuple[WorkspaceState, dict[str, bytes]]


class Facts:
    """Gathers the facts beside the first model call; records them before anything can change."""

    def __init__(self, session: Session, turn: int) -> None:
        self.session, self.turn = session, turn
        self._task: asyncio.Task[Gathered] | None = asyncio.create_task(gather(session.workspace))

    async def record(self) -> None:
        """Store the facts, once; waits for them. A defect in gathering them keeps no turn from ending."""
        task, self._task = self._task, None
        if task is None:
            return
        try:
            state, blobs = await task
        except Exception as error:
            log.exception("the facts of %s could not be gathered", self.session.workspace.root)
            state, blobs = WorkspaceState(git={"error": f"a defect in Etude ({type(error).__name__})"}), {}
        await self.session.record("workspace", state, turn=self.turn, step=0, blobs=blobs)

    def stop(self) -> None:
        """Stop gathering what nobody will record."""
        if self._task is not None:
            self._task.cancel()
            self._task = None


async def gather(workspace: Workspace) -> Gathered:
    """The facts; git runs inside the sandbox, for a repository's configuration can execute code."""
    environment: dict[str, Any] = {
        "platform": platform.platform(),
        "python": platform.python_version(),
        "timezone": time.tzname[0],
        "locale": os.environ.get("LANG", ""),
    }
    blobs: dict[str, bytes] = {}
    try:
        sandbox = await ShellSession.of(workspace).sandbox()
        environment["tier"] = sandbox.tier
        git = (
            await _git(sandbox, blobs) if sandbox.confined else {"error": "git is not run outside a sandbox"}
        )
    except (ToolError, OSError) as error:  # no sandbox, or no room for what runs in it
        log.info("no git facts of %s: %s", workspace.root, error)
        git = {"error": str(error)}
    environment |= await asyncio.to_thread(_lockfiles, workspace)
    return WorkspaceState(git=git, environment=environment), blobs


async def _git(sandbox: Sandbox, blobs: dict[str, bytes]) -> dict[str, Any] | None:
    status = await _run(sandbox, "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal")
    if status is None:
        return None
    lines = status.decode("utf-8", "surrogateescape").split("\0")
    head = {
        key: value
        for line in lines
        if line.startswith("# branch.")
        for key, _, value in [line.removeprefix("# branch.").partition(" ")]
    }
    changed = [_printable(line) for line in lines if line and not line.startswith("#")]
    facts: dict[str, Any] = {
        "head": head.get("oid"),
        "branch": head.get("head"),
        "upstream": head.get("upstream"),
        "changed": changed[:500],
        "changed_count": len(changed),
    }
    if any(not line.startswith("?") for line in changed) and head.get("oid") != "(initial)":
        diff = await _run(sandbox, "diff", "--binary", "--no-ext-diff", "--no-textconv", "HEAD")
        if diff is not None and len(diff) < DIFF_LIMIT:
            name = content_hash(diff)
            blobs[name] = diff
            facts["diff"] = BlobRef(hash=name, size=len(diff)).model_dump()
    return facts


async def _run(sandbox: Sandbox, *arguments: str) -> bytes | None:
    """Output of a git command; None where git has nothing to say (no repository)."""
    ran = await sandbox.run([*GIT, *arguments], timeout_s=TIMEOUT_S, limit=DIFF_LIMIT)
    return ran.stdout if ran.exit_code == 0 else None


def _lockfiles(workspace: Workspace) -> dict[str, Any]:
    found: dict[str, str] = {}
    for name in LOCKFILES:
        try:
            data, _ = read_bytes(workspace.root, name, limit=DIFF_LIMIT)
            found[name] = content_hash(data)
        except ToolError:
            continue
    return {"lockfiles": found} if found else {}


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
