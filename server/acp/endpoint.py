"""The WebSocket at `/acp`: refuse or accept, then carry frames until one side ends it."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from server.acp.connection import Connection, Method
from server.auth import Tokens, bearer
from server.hub import STOPPING, Hub

log = logging.getLogger(__name__)

SUBPROTOCOL = "acp.v1"
CLOSE_S = 2.0
"""How long a close frame may take. A peer that does not read never sees it; it resumes by `seq`."""


class Endpoint:
    """An ASGI application for one path. Host and Origin were checked before."""

    def __init__(self, hub: Hub, tokens: Tokens, methods: Mapping[str, Method]) -> None:
        self.hub, self.tokens, self.methods = hub, tokens, methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        offered = scope.get("subprotocols", [])
        token = bearer(scope["headers"]) or _offered_token(offered)
        user = self.tokens.verify(token) if token else None
        if user is None:
            self.hub.metrics.refused.labels("401").inc()
            message = "a token is needed: send Authorization: Bearer T, or the subprotocols acp.v1, bearer.T"
            await JSONResponse({"detail": message}, 401, {"WWW-Authenticate": "Bearer"})(scope, receive, send)
            return
        await receive()  # websocket.connect
        subprotocol = SUBPROTOCOL if SUBPROTOCOL in offered else None
        await send({"type": "websocket.accept", "subprotocol": subprotocol, "headers": []})
        await self._carry(receive, send, user)

    async def _carry(self, receive: Receive, send: Send, user: str) -> None:
        ended: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()

        def abort(code: int, reason: str) -> None:
            if not ended.done():
                ended.set_result((code, reason))

        async def write(text: str) -> None:
            await send({"type": "websocket.send", "text": text})

        async def read() -> None:
            while (message := await receive())["type"] != "websocket.disconnect":
                connection.feed(message.get("text"))

        clean = self.hub.opener.secrets.clean_value
        connection = Connection(self.methods, write, abort, user_id=user, clean=clean)
        if self.hub.stopping:
            abort(STOPPING, "the server is stopping")
        self.hub.joined(connection)
        tasks = [asyncio.create_task(read()), asyncio.create_task(connection.pump())]
        try:
            await asyncio.wait({*tasks, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            connection.finish()
            for task in tasks:
                task.cancel()
            self.hub.gone(connection)
            if ended.done():
                code, reason = ended.result()
                with suppress(Exception):
                    await asyncio.wait_for(_close(send, code, clean(reason)), CLOSE_S)
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(result, Exception):
                    log.debug("the transport ended: %r", result)


async def _close(send: Send, code: int, reason: str) -> None:
    await send({"type": "websocket.close", "code": code, "reason": reason})


async def upgrade_required(scope: Scope, receive: Receive, send: Send) -> None:
    """Plain HTTP at the WebSocket's path."""
    answer = JSONResponse({"detail": "this is a WebSocket: connect with ws:// and a token"}, 426)
    answer.headers["Upgrade"] = "websocket"
    await answer(scope, receive, send)


def _offered_token(offered: list[str]) -> str | None:
    if SUBPROTOCOL not in offered:
        return None
    return next((item.removeprefix("bearer.") for item in offered if item.startswith("bearer.")), None)
