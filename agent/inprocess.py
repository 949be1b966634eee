"""The agent in a Python program: a session in memory on a folder, with a model of your choice."""

import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from platformdirs import user_cache_path
from ulid import ULID

from agent.approval import Ask, deny_headless
from agent.events import Event, Live, Mode, Prompt, SessionCreated, draft
from agent.log import MemoryLog
from agent.loop import run_turn
from agent.models.catalog import open_model
from agent.models.settings import ModelSettings
from agent.session import Session
from tools.redaction import Redactor, environment_secrets
from tools.sandbox.policy import SandboxPolicy
from tools.snapshots import SnapshotStore
from tools.workspace import Workspace


@asynccontextmanager
async def open_session(
    workspace: str | Path,
    *,
    model: str,
    mode: Mode = "auto",
    approve: Ask = deny_headless,
    models: Mapping[str, ModelSettings] | None = None,
    max_steps: int = 200,
    policy: SandboxPolicy | None = None,
) -> AsyncIterator[Session]:
    """A session on a folder; its log lives in memory (`session.log.events`).

    `model` is a name as `--model` takes it (`openai:MODEL`, `local`, a key of `models`). `approve`
    answers approval requests; by default nobody is there and they are denied.

    Raises:
        NotADirectoryError: `workspace` is not a folder.
        ModelError: there is no such model.
    """
    root = _folder(workspace)
    client = open_model(model, models=models or {}, cache_dir=_cache())
    log = MemoryLog(str(ULID()))
    created = SessionCreated(
        workspace=str(root), user_id="local", model=client.name, mode=mode, profile=client.profile
    )
    first = await log.submit(draft("session.created", created))
    keys = [one.api_key_env for one in (models or {}).values() if one.api_key_env]
    redactor = Redactor(known=environment_secrets(os.environ, ("OPENAI_API_KEY", *keys)))
    # Like the log, what is kept of the workspace ends with the session.
    with TemporaryDirectory(prefix="etude-snapshots-", ignore_cleanup_errors=True) as kept:
        hands = Workspace(root, policy or SandboxPolicy(), snapshots=SnapshotStore(Path(kept)))
        session = Session(log, [first], hands, client, approve, max_steps=max_steps, redactor=redactor)
        try:
            yield session
        finally:
            await session.close()
            await client.close()


def _cache() -> Path:
    return Path(os.environ.get("ETUDE_CACHE") or user_cache_path("etude"))


def _folder(workspace: str | Path) -> Path:
    root = Path(workspace).expanduser().resolve()
    if not root.is_dir():
        raise NotADirectoryError(f"{root} is not a folder: give the folder of a repository")
    return root


def ask(session: Session, text: str) -> AsyncGenerator[Event | Live, None]:
    """Run one turn on these words; yields events and live chunks, up to `turn.ended`."""
    return run_turn(session, Prompt(message_id=str(ULID()), text=text))
