"""The real application on a real socket, in the event loop of the test."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Self

from fastapi import FastAPI

from server import serving
from server.app import create_app
from server.discovery import ServerInfo
from server.hub import Hub
from server.settings import Settings
from server.store import Store
from tests.support.acp import AcpClient
from tests.support.scripted_model import ScriptedModel

TOKEN = "a-token-for-tests-only"


class InProcess:
    """`async with InProcess(tmp_path, model_url=model.base_url) as server: …`."""

    def __init__(
        self,
        folder: Path,
        *,
        model_url: str = "http://127.0.0.1:9/v1",
        mode: str = "full",
        environ: dict[str, str] | None = None,
        **flags: Any,
    ) -> None:
        self.folder, self.workspace = folder, folder / "workspace"
        self.workspace.mkdir(exist_ok=True)
        (self.workspace / "hello.py").write_text("def greet():\n    return 'helo'\n")
        self.settings = Settings.load({"agent.mode": mode, **flags}, environ or {}, None).model_copy(
            update={"models": _scripted(model_url)}
        )
        self.info: ServerInfo | None = None

    async def __aenter__(self) -> Self:
        self.store = await Store.open(f"sqlite:///{self.folder / 'etude.db'}")
        self.app: FastAPI = create_app(
            self.settings,
            self.store,
            TOKEN,
            [self.workspace],
            tokens_file=self.folder / "tokens.json",
            snapshots=self.folder / "snapshots",
        )
        bound, ready = serving.listen("127.0.0.1", 0), asyncio.Event()

        def started(info: ServerInfo) -> None:
            self.info = info
            ready.set()

        self.server, self.task = serving.start(self.app, bound, TOKEN, started, public=False)
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait({waiting, self.task}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self.info is None:
            await self.task
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """The graceful stop of a signal."""
        self.server.should_exit = True
        await self.task
        await self.store.close()

    @property
    def hub(self) -> Hub:
        return self.app.state.hub

    @property
    def url(self) -> str:
        assert self.info is not None
        return self.info.url

    @property
    def token(self) -> str:
        return TOKEN

    def client(self, **options: Any) -> AcpClient:
        return AcpClient(self.url, options.pop("token", TOKEN), **options)


@asynccontextmanager
async def starting(folder: Path) -> AsyncIterator[Callable[..., Any]]:
    """Gives `start`: `server, model = await start([turns], mode="ask")`; all is stopped at the end."""
    async with AsyncExitStack() as stack:

        async def start(turns: Any = (), **options: Any) -> tuple[InProcess, ScriptedModel]:
            model = stack.enter_context(ScriptedModel(turns))
            flags = {"agent.model": "scripted", **options.pop("flags", {})}
            server = InProcess(folder, model_url=model.base_url, **options, **flags)
            return await stack.enter_async_context(server), model

        yield start


def _scripted(url: str) -> dict[str, Any]:
    from agent.models.settings import ModelSettings

    model = ModelSettings(provider="openai", model="scripted", base_url=url, context_window=100_000)
    return {"scripted": model}
