"""A session in memory with real tools and a scripted model, and readings of what a turn logged."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from ulid import ULID

from agent import ask
from agent.approval import Ask, deny_headless
from agent.events import Event, Mode, SessionCreated, draft
from agent.log import MemoryLog
from agent.models.catalog import open_model
from agent.models.settings import ModelSettings
from agent.session import Session
from tests.support.scripted_model import ScriptedModel
from tools.sandbox.policy import SandboxPolicy
from tools.workspace import Workspace


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


async def session_on(
    root: Path,
    model: ScriptedModel,
    *,
    mode: Mode = "full",
    approve: Ask = deny_headless,
    events: Sequence[Event] = (),
    log: MemoryLog | None = None,
    **options: Any,
) -> Session:
    settings = ModelSettings(provider="openai", model="scripted", base_url=model.base_url)
    client = open_model("scripted", models={"scripted": settings}, cache_dir=root)
    log = log or MemoryLog(str(ULID()), events)
    if not log.events:
        created = SessionCreated(
            workspace=str(root), user_id="local", model="scripted", mode=mode, profile="full"
        )
        await log.submit(draft("session.created", created))
    workspace = Workspace(root, SandboxPolicy())
    return Session(log, log.events, workspace, client, approve, **options)


@contextlib.asynccontextmanager
async def opened(root: Path, model: ScriptedModel, **options: Any) -> AsyncIterator[Session]:
    session = await session_on(root, model, **options)
    try:
        yield session
    finally:
        await session.close()
        await session.model.close()


async def turn(session: Session, text: str = "go") -> list[Event]:
    return [message async for message in ask(session, text) if isinstance(message, Event)]


async def until(condition: Callable[[], Any], seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


def kinds(events: Sequence[Event], *which: str) -> list[str]:
    return [event.type for event in events if not which or event.type in which]


def data(events: Sequence[Event], type: str) -> list[dict[str, Any]]:
    return [event.data for event in events if event.type == type]


def paired(events: Sequence[Event]) -> bool:
    """Every call the model wrote has exactly one result, and later requests show them in pairs."""
    called = [call["id"] for event in events if event.type == "generation" for call in event.data["calls"]]
    answered = [event.data["call_id"] for event in events if event.type == "tool.result"]
    return sorted(called) == sorted(answered)
