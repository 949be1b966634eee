"""REST under `/api`, and health: for what is not a conversation."""

import asyncio
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response
from pydantic import BaseModel, Field

from agent.events import Event
from server.auth import Codes, Tokens, bearer
from server.hub import Hub
from server.metrics import CONTENT_TYPE
from server.store import (
    SessionBusy,
    SessionRow,
    StoreError,
    UnknownBlob,
    UnknownGeneration,
    UnknownSession,
)
from server.titles import session_title
from server.version import VERSION
from server.wire import to_json

MAX_EVENTS = 10_000
READY_S = 2.0


class Caller(BaseModel):
    """Who asks, and with which token."""

    user_id: str
    token: str = Field(repr=False)


class CodeIn(BaseModel):
    code: Annotated[str, Field(min_length=1, max_length=200)]


class TokenOut(BaseModel):
    token: str


class CodeOut(BaseModel):
    code: str


class SessionOut(BaseModel):
    """One session. Times are integer microseconds UTC."""

    id: str
    workspace: str
    user_id: str
    title: str | None
    model: str
    mode: str
    created: int
    updated: int
    last_seq: int
    turn: int
    running: bool


class SessionsOut(BaseModel):
    sessions: list[SessionOut]
    next: str | None


class RuleOut(BaseModel):
    """What runs without asking. `rule`: `shell:` and the words a command begins with, or a tool's name.
    `made` in microseconds UTC; `sessions` are those whose logs hold it."""

    id: str
    user_id: str
    workspace: str
    rule: str
    made: int
    sessions: list[str]


class RulesOut(BaseModel):
    rules: list[RuleOut]


class EventsOut(BaseModel):
    """`next` is the `after` of the next page, or null at the end."""

    events: list[Event]
    next: int | None


class ServerOut(BaseModel):
    version: str
    workspaces: list[str]
    models: list[str]
    model: str | None
    mode: str
    user: str


def caller(request: Request) -> Caller:
    """The owner of the bearer token; 401 without one."""
    tokens: Tokens = request.app.state.tokens
    token = bearer(request.scope["headers"])
    user = tokens.verify(token) if token else None
    if token is None or user is None:
        message = "a token is needed: send Authorization: Bearer T"
        raise HTTPException(401, message, {"WWW-Authenticate": "Bearer"})
    return Caller(user_id=user, token=token)


def hub(request: Request) -> Hub:
    return request.app.state.hub


def codes(request: Request) -> Codes:
    return request.app.state.codes


Who = Annotated[Caller, Depends(caller)]
Sessions = Annotated[Hub, Depends(hub)]
OneTime = Annotated[Codes, Depends(codes)]

open_router = APIRouter()
router = APIRouter(prefix="/api", responses={401: {"description": "no or unknown token"}})


@open_router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Alive: the process answers."""
    return {"status": "ok", "version": VERSION}


@open_router.get("/readyz", responses={503: {"description": "the database does not answer"}})
async def readyz(sessions: Sessions) -> Response:
    """Ready: the database answers and the server is not stopping."""
    if sessions.stopping:
        return _json({"status": "stopping"}, 503)
    try:
        await asyncio.wait_for(sessions.store.sessions(limit=1), READY_S)
    except (StoreError, OSError, TimeoutError) as error:
        return _json({"status": "no database", "error": str(error) or "timed out"}, 503)
    return _json({"status": "ready"})


@open_router.get("/metrics")
async def metrics(who: Who, sessions: Sessions) -> Response:
    """Prometheus metrics. They name tools and models, so they need a token."""
    return Response(sessions.metrics.text(), media_type=CONTENT_TYPE)


@router.post("/token", responses={401: {"description": "the code is unknown, used or too old"}})
async def trade_code(body: CodeIn, one_time: OneTime) -> TokenOut:
    """Trade the one-time code of the printed URL for a bearer token. Works once, for ten minutes."""
    token = one_time.trade(body.code)
    if token is None:
        raise HTTPException(401, "this code is unknown, used or too old: get a new URL from the server")
    return TokenOut(token=token)


@router.post("/code")
async def mint_code(who: Who, one_time: OneTime) -> CodeOut:
    """A new one-time code for the caller's own token, to open another page."""
    return CodeOut(code=one_time.mint(who.token))


@router.get("/server")
async def server(who: Who, sessions: Sessions) -> ServerOut:
    """The server and the caller."""
    settings = sessions.settings
    return ServerOut(
        version=VERSION,
        workspaces=[str(path) for path in sessions.workspaces],
        models=sessions.opener.model_names(),
        model=settings.agent.model,
        mode=settings.agent.mode,
        user=who.user_id,
    )


@router.get("/sessions", responses={404: {"description": "`before` is no place in the list"}})
async def list_sessions(
    who: Who,
    sessions: Sessions,
    workspace: str | None = None,
    query: Annotated[str | None, Query(max_length=200)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: str | None = None,
) -> SessionsOut:
    """The caller's sessions, newest first. `next` is the `before` of the next page."""
    try:
        rows = await sessions.store.sessions(
            user_id=who.user_id, workspace=workspace, query=query, limit=limit + 1, before=before
        )
    except UnknownSession as error:
        raise HTTPException(404, "`before` is no place in this list: list from the start") from error
    more = rows[limit - 1].cursor if len(rows) > limit else None
    return SessionsOut(sessions=[_out(row, sessions) for row in rows[:limit]], next=more)


@router.get("/sessions/{session_id}", responses={404: {"description": "no such session of the caller"}})
async def get_session(session_id: str, who: Who, sessions: Sessions) -> SessionOut:
    return _out(await _row(session_id, who, sessions), sessions)


@router.get("/sessions/{session_id}/events", response_model=EventsOut)
async def get_events(
    session_id: str,
    who: Who,
    sessions: Sessions,
    after: Annotated[int, Query(ge=0, lt=2**63)] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_EVENTS)] = 1000,
) -> Response:
    """The log of a session, in order."""
    await _row(session_id, who, sessions)
    events = await sessions.store.events(session_id, after=after, limit=limit)
    more = events[-1].seq if len(events) == limit else None
    return _json({"events": [event.model_dump() for event in events], "next": more})


@router.delete("/sessions/{session_id}", status_code=204)
async def delete_session(session_id: str, who: Who, sessions: Sessions) -> None:
    """Delete a session and what only it refers to."""
    try:
        await sessions.delete(session_id, who.user_id)
    except UnknownSession as error:
        raise HTTPException(404, str(error)) from error
    except SessionBusy as error:
        raise HTTPException(409, str(error)) from error


@router.get("/rules")
async def list_rules(who: Who, sessions: Sessions, workspace: str | None = None) -> RulesOut:
    """What the caller allowed for good, by workspace."""
    rows = await sessions.store.rules(user_id=who.user_id, workspace=workspace)
    return RulesOut(rules=[RuleOut.model_validate(asdict(row)) for row in rows])


@router.delete(
    "/rules/{rule_id}",
    status_code=204,
    responses={404: {"description": "no such rule of the caller"}, 409: {"description": "held elsewhere"}},
)
async def revoke_rule(rule_id: str, who: Who, sessions: Sessions) -> None:
    """Take a rule back; open sessions ask again at once."""
    try:
        await sessions.revoke(rule_id, who.user_id)
    except KeyError as error:
        raise HTTPException(404, f"there is no rule {rule_id}") from error
    except SessionBusy as error:
        raise HTTPException(409, str(error)) from error


@router.get("/generations/{generation_id}")
async def get_generation(generation_id: str, who: Who, sessions: Sessions) -> Response:
    """One model call: its exact prompt, sampling, tokens, timings, usage and cost."""
    try:
        generation = await sessions.store.generation(generation_id)
        await _row(str(generation["session_id"]), who, sessions)
    except UnknownGeneration as error:
        raise HTTPException(404, str(error)) from error
    return _json(generation)


@router.get("/blobs/{hash}", response_class=Response)
async def get_blob(hash: str, who: Who, sessions: Sessions) -> Response:
    """The bytes of a blob. Its hash is what gives access: it is only found in events one may read."""
    try:
        data = await sessions.store.blob(hash)
    except UnknownBlob as error:
        raise HTTPException(404, str(error)) from error
    headers = {"Content-Disposition": "attachment", "Cache-Control": "private, max-age=31536000, immutable"}
    return Response(data, media_type="application/octet-stream", headers=headers)


async def _row(session_id: str, who: Caller, sessions: Hub) -> SessionRow:
    try:
        return await sessions.row(session_id, who.user_id)
    except UnknownSession as error:
        raise HTTPException(404, str(error)) from error


def _out(row: SessionRow, sessions: Hub) -> SessionOut:
    live = sessions.sessions.get(row.id)
    return SessionOut(
        id=row.id,
        workspace=row.workspace,
        user_id=row.user_id,
        title=session_title(row),
        model=row.model,
        mode=row.mode,
        created=row.created,
        updated=row.updated,
        last_seq=row.last_seq,
        turn=row.turn,
        running=live is not None and live.running,
    )


def _json(content: Any, status: int = 200) -> Response:
    return Response(to_json(content), status, media_type="application/json")
