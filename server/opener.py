"""What a live session is made of: a leased log, a workspace with its sandbox, a model."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from agent.approval import Grants
from agent.events import Event
from agent.judge.rules import read as read_rule
from agent.log import LogError
from agent.loop import recover
from agent.models import open_model
from agent.models.catalog import default_model
from agent.models.chat_completions import ChatCompletions
from agent.models.client import Chunk, ModelClient, ModelError, Price, Request
from agent.session import Session
from server.acp.elicitation import ask_user
from server.acp.permissions import ask_permission
from server.configuration import SettingsError
from server.live import LiveSession, SessionFailed
from server.metrics import Metrics
from server.places import cache_dir, data_dir
from server.secrets import KeyFileError, Secrets
from server.store import SessionBusy, Store, StoreError
from server.warming import Warming
from tools.index.indexer import Indexer
from tools.mcp import McpServers, McpSpec
from tools.sandbox.policy import SandboxPolicy
from tools.snapshots import SnapshotStore
from tools.workspace import Workspace

if TYPE_CHECKING:
    from server.settings import McpSettings, SandboxSettings, Settings

log = logging.getLogger(__name__)

LONG = 2000
"""Events from which on the fold runs beside the event loop."""


class WorkspaceRefused(Exception):
    """The folder cannot be a workspace. The message says why and what to give instead."""


class MissingModel:
    """Stands where a model could not be opened: the history stays readable, a turn says what is wrong."""

    policy: str | None = None
    context_window = 0
    profile: Literal["full", "compact"] = "full"
    price: Price | None = None

    def __init__(self, name: str, message: str) -> None:
        self.name, self.message = name, message

    async def sample(self, request: Request) -> AsyncGenerator[Chunk, None]:
        raise ModelError(self.message)
        yield  # an async generator that never yields

    async def close(self) -> None:
        """Nothing was opened."""


class Opener:
    """Opens sessions and owns the model clients they share."""

    def __init__(self, settings: "Settings", store: Store, metrics: Metrics) -> None:
        self.settings, self.store, self.metrics = settings, store, metrics
        self.secrets = Secrets(settings, data_dir())
        self._models: dict[str, ModelClient] = {}
        self._opened: dict[str, ModelClient] = {}
        """By the name they were asked for and by their own: who knows a model's window."""
        self._default = ""
        self._lock = asyncio.Lock()
        self._granted: dict[tuple[str, str], set[str]] = {}
        self._indexer = Indexer()
        self._warming = Warming()
        self.snapshots = SnapshotStore(data_dir() / "snapshots")

    # ---- models

    def model_names(self) -> list[str]:
        """The models a user can choose from: the default, the configured ones, those in use."""
        default = [name for name in (self.settings.agent.model, self._default) if name]
        return list(dict.fromkeys([*default, *self.settings.models, *self._models]))

    def window(self, model: str) -> int:
        """Tokens of a model's context; 0 while unknown."""
        opened, configured = self._opened.get(model), self.settings.models.get(model)
        known = (opened.context_window if opened else 0, configured.context_window if configured else 0)
        return next(filter(None, known), 0)

    async def model(self, name: str) -> ModelClient:
        """The client of this name, shared by all sessions (but a recorded one, which has a position).

        Raises:
            ModelError: it cannot be opened; the message says what is missing.
        """
        if (known := self._models.get(name)) is not None:
            return known
        async with self._lock:
            if (known := self._models.get(name)) is not None:
                return known
            client = await asyncio.to_thread(
                open_model,
                name,
                models=self.settings.models,
                cache_dir=cache_dir(),
                load_events=self.store.all_events,
            )
            self._opened[name] = self._opened[client.name] = client
            if not name.startswith("recorded:"):
                self._models[name] = client
            return client

    async def default_model(self) -> str:
        """The model to use where none is configured; empty if none can be found (a turn then says so)."""
        if not self._default:
            try:
                self._default = (await default_model(self.settings.models)).name
            except ModelError as error:
                log.warning("no model: %s", error.message)
        return self._default

    def profile(self, name: str) -> Literal["full", "compact"]:
        """The tool profile to begin with: that of the open client, the configured one, or a guess."""
        if (known := self._models.get(name)) is not None:
            return known.profile
        return "compact" if name.partition(":")[0] == "local" else "full"

    async def close(self) -> None:
        models, self._models = list(self._models.values()), {}
        for model in models:
            await model.close()
        await self._indexer.close()

    # ---- sessions

    async def open(self, live: LiveSession) -> Session:
        """Take the lease, read the log, fold it.

        Raises:
            SessionFailed: with what a person should know.
        """
        try:
            lease = await self.store.lease(live.id)
        except SessionBusy as error:
            raise SessionFailed(f"another server works on this session: {error}") from error
        except StoreError as error:
            raise SessionFailed(str(error)) from error
        try:
            events = await self.store.all_events(live.id)
            root = Path(events[0].data["workspace"])
            await asyncio.to_thread(check_workspace, root)
            settings = await asyncio.to_thread(narrowed, self.settings, root)
            workspace = Workspace(
                root=root,
                policy=_policy(settings.sandbox),
                buffers=live.editors.buffers,
                write_through=live.write_through,
                refresh=live.refresh,
                cache=cache_dir(),
                indexer=self._indexer,
                snapshots=self.snapshots,
            )
            ask, question = partial(ask_permission, live), partial(ask_user, live)
            model = await self._model_or_reason(_last_model(events))
            agent = settings.agent
            servers = (*_specs(settings, settings.mcp), *live.mcp)
            mcp = McpServers(servers, root, _specs(settings, settings.proposed))
            redactor = await asyncio.to_thread(self.secrets.redactor, events, servers)

            def fold() -> Session:
                return Session(
                    lease, events, workspace, model, ask,
                    max_steps=agent.max_steps, summarize_at=agent.summarize_at,
                    max_summaries=agent.max_summaries, mcp=mcp, redactor=redactor, question=question,
                )  # fmt: skip

            session = await asyncio.to_thread(fold) if len(events) > LONG else fold()
            session.grants = await self._grants(live, settings)
            self._warming.begin(workspace)
            return session
        except (WorkspaceRefused, StoreError, KeyFileError) as error:
            await lease.release()
            raise SessionFailed(str(error)) from error
        except BaseException:
            await lease.release()
            raise

    async def granted(self, user_id: str, workspace: str) -> set[str]:
        """The rules of a person in a workspace, as they are stored now: one set for all open sessions."""
        rows = await self.store.rules(user_id=user_id, workspace=workspace)
        shared = self._granted.setdefault((user_id, workspace), set())
        shared.clear()
        shared.update(row.rule for row in rows)
        return shared

    async def _grants(self, live: LiveSession, settings: "Settings") -> Grants:
        approvals = settings.approvals
        return Grants(
            rules=await self.granted(live.user_id, live.root),
            allowed=tuple(map(read_rule, approvals.allow)),
            denied=tuple(map(read_rule, approvals.deny)),
        )

    async def recover(self, session: Session) -> None:
        """Close what a crash left open in the log."""
        try:
            await recover(session)
        except LogError as error:
            raise SessionFailed(f"the log of this session cannot be written: {error}") from error

    async def suit(self, session: Session) -> None:
        """Give a new session the tool profile that suits its model's window, which an endpoint has to say."""
        model, state = session.model, session.state
        if state.turn > 0 or not model.context_window:
            return
        if isinstance(model, ChatCompletions):
            with suppress(ModelError):  # what is wrong there is said by the first turn
                await model.warm()
        if model.profile != state.profile:
            await session.configure(profile=model.profile)

    async def let_go(self, session: Session) -> None:
        """End the session's processes and give its lease back."""
        await self._warming.end(session.workspace)
        try:
            await session.close()
        finally:
            await session.log.release()  # pyright: ignore[reportAttributeAccessIssue] - a `SessionLog`

    async def _model_or_reason(self, name: str) -> ModelClient:
        try:
            return await self.model(name)
        except ModelError as error:
            log.warning("the model %s cannot be used: %s", name, error.message)
            return MissingModel(name, error.message)


def check_workspace(root: Path) -> None:
    """Refuse folders that must not be handed to an agent.

    Raises:
        WorkspaceRefused: the folder is missing or unreadable, the root, the home folder or holds
            Etude's own data.
    """
    if not root.is_absolute():
        raise WorkspaceRefused(f"a workspace is an absolute path, got {root}")
    try:
        if not root.is_dir():
            raise WorkspaceRefused(f"there is no folder {root}: give a folder that exists")
        with os.scandir(root):
            real, data = root.resolve(), data_dir().resolve()
    except OSError as error:
        raise WorkspaceRefused(
            f"the folder {root} cannot be opened ({error.strerror}): give one that you may read"
        ) from error
    if real == Path(real.anchor):
        raise WorkspaceRefused("the root of the file system cannot be a workspace: give a project's folder")
    if real == Path.home().resolve():
        raise WorkspaceRefused(f"{real} is your home folder: give a project's folder inside it")
    if data.is_relative_to(real) or real.is_relative_to(data):
        raise WorkspaceRefused(f"{real} and Etude's own data in {data} must lie apart: give another folder")


def narrowed(settings: "Settings", root: Path) -> "Settings":
    """The settings as narrowed by the workspace's own `etude.toml`.

    Raises:
        WorkspaceRefused: that file is wrong.
    """
    try:
        return settings.for_workspace(root)
    except SettingsError as error:
        raise WorkspaceRefused(f"{error}. Correct or remove that file") from error


def _specs(settings: "Settings", servers: Mapping[str, "McpSettings"]) -> list[McpSpec]:
    return [server.spec(name, settings.environ) for name, server in servers.items()]


def _last_model(events: Iterable[Event]) -> str:
    name = ""
    for event in events:
        if event.type in ("session.created", "config.changed") and event.data.get("model"):
            name = event.data["model"]
    return name


def _policy(sandbox: "SandboxSettings") -> SandboxPolicy:
    """The confinement of a workspace, as narrowed by its own `etude.toml`."""
    return SandboxPolicy(
        tier=sandbox.tier,
        network=sandbox.network,
        read=sandbox.read,
        memory_mb=sandbox.memory_mb,
        pids=sandbox.pids,
    )
