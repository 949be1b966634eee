"""The app factory: one FastAPI application around a store, a hub and a gate."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exception_handlers import http_exception_handler
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.routing import Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server import rest
from server.acp.endpoint import Endpoint, upgrade_required
from server.acp.methods import methods
from server.auth import Codes, Gate, Tokens
from server.hub import Hub
from server.metrics import Metrics
from server.places import data_dir
from server.store import Store, StoreError
from server.version import VERSION
from server.wire import to_json
from tools.snapshots import SnapshotStore

if TYPE_CHECKING:
    from server.settings import Settings

STATIC = Path(__file__).parent / "static"
MAX_BODY = 1 << 20
"""Bytes of a request's body. Conversations go over the WebSocket; nothing else is long."""
_NO_PAGE = (
    "<!doctype html><meta charset=utf-8><title>Etude</title>"
    "<p>Etude is running. The chat page is not built here: run <code>make web</code>, "
    "or use <code>etude chat</code> or an editor.</p>"
)


def create_app(
    settings: "Settings",
    store: Store,
    token: str,
    workspaces: list[Path],
    *,
    tokens_file: Path | None = None,
    snapshots: Path | None = None,
) -> FastAPI:
    """The application of one server. `token` is the local user's; the caller closes the store. Where other
    tokens and the snapshots lie is the data folder unless given.

    `app.state` has `hub`, `tokens`, `codes` and `metrics`.
    """
    metrics = Metrics()
    hub = Hub(settings, store, metrics, workspaces)
    hub.opener.secrets.know(token)
    if snapshots is not None:
        hub.opener.snapshots = SnapshotStore(snapshots)
    tokens = Tokens.load(tokens_file or data_dir() / "tokens.json", token)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        hub.start()
        try:
            yield
        finally:
            await hub.stop()

    app = FastAPI(
        title="Etude",
        version=VERSION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
    )
    app.state.hub, app.state.tokens, app.state.codes, app.state.metrics = hub, tokens, Codes(), metrics
    app.include_router(rest.open_router)
    app.include_router(rest.router)
    app.router.routes.append(WebSocketRoute("/acp", Endpoint(hub, tokens, methods(hub))))
    app.router.routes.append(Route("/acp", _PlainAcp(), include_in_schema=False))
    app.add_exception_handler(StoreError, _store_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(StarletteHTTPException, _refused)
    app.add_api_route("/", _page, include_in_schema=False)
    if STATIC.is_dir():
        app.mount("/static", StaticFiles(directory=STATIC), name="static")
    gate = Gate(settings.server.allowed_origins, (*settings.server.allowed_hosts, settings.server.host))
    app.add_middleware(_Gatekeeper, gate=gate, metrics=metrics)
    return app


class _PlainAcp:
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await upgrade_required(scope, receive, send)


class _Gatekeeper:
    """Checks Host and Origin of everything before anything looks at it, and adds security headers."""

    def __init__(self, app: ASGIApp, gate: Gate, metrics: Metrics) -> None:
        self.app, self.gate, self.metrics = app, gate, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        if (why := self.gate.refuse(scope["headers"])) is not None:
            self.metrics.refused.labels("403").inc()
            await JSONResponse({"detail": why}, 403)(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await self.app(scope, receive, send)
            return
        host = next(value.decode("latin-1") for name, value in scope["headers"] if name == b"host")

        async def send_secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "no-referrer"
                headers["X-Frame-Options"] = "DENY"
                headers["Cross-Origin-Opener-Policy"] = "same-origin"
                headers["Content-Security-Policy"] = _policy(host)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self.app(scope, _bounded(receive), send_secured)


def _bounded(receive: Receive) -> Receive:
    """`receive` that ends in 413 where a body grows beyond `MAX_BODY`: nobody has shown a token yet."""
    size = 0

    async def bounded() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > MAX_BODY:
            raise HTTPException(413, f"the body of a request may hold {MAX_BODY} bytes")
        return message

    return bounded


def _policy(host: str) -> str:
    return (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        f"font-src 'self'; connect-src 'self' ws://{host} wss://{host}; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _page() -> HTMLResponse:
    """The chat page, or a sentence where it is not built."""
    index = STATIC / "index.html"
    return HTMLResponse(index.read_text("utf-8") if index.is_file() else _NO_PAGE)


async def _invalid(request: Request, error: Exception) -> Response:
    """What is wrong with a request. What was sent is not repeated: it may be long, or no JSON at all."""
    assert isinstance(error, RequestValidationError)
    problems = [{key: item[key] for key in ("type", "loc", "msg")} for item in error.errors()]
    detail = await _clean(request, problems)
    return Response(to_json({"detail": detail}), 422, media_type="application/json")


async def _store_error(request: Request, error: Exception) -> Response:
    return JSONResponse({"detail": await _clean(request, str(error))}, 503)


async def _refused(request: Request, error: Exception) -> Response:
    """An answer that a path gave by raising it. Its words may repeat what was asked for."""
    assert isinstance(error, StarletteHTTPException)
    detail = await _clean(request, error.detail)
    return await http_exception_handler(
        request, StarletteHTTPException(error.status_code, detail, error.headers)
    )


async def _clean(request: Request, value: Any) -> Any:
    """Words of an error without secrets."""
    return await asyncio.to_thread(request.app.state.hub.opener.secrets.clean_value, value)
