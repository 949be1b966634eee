"""The methods a client may call: the Agent Client Protocol, version 1, and ours that begin with `_etude/`."""

import asyncio
from datetime import UTC, datetime
from typing import Any

from ulid import ULID

from agent import events
from agent.log import LogError
from agent.models.client import ModelError
from agent.undo import Target
from server.acp import params as p
from server.acp.connection import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    NOT_FOUND,
    Answer,
    Connection,
    Handler,
    Method,
    RpcError,
)
from server.acp.editor import editor_context
from server.acp.options import MODE_IDS, config_options, mode_state
from server.acp.undo import taken_back
from server.hub import Hub
from server.live import LiveSession, SessionFailed
from server.opener import WorkspaceRefused
from server.store import SessionRow, StoreError, UnknownSession
from server.titles import session_title
from server.version import VERSION
from tools.mcp import McpSpec, McpSpecError

PROTOCOL_VERSION = 1
STOP_REASONS = {
    "end_turn": "end_turn",
    "cancelled": "cancelled",
    "max_steps": "max_turn_requests",
    "overlong": "max_tokens",
}
"""Ends of a turn that ACP has a word for; the others are answered as errors."""
PAGE = 50


def methods(hub: Hub) -> dict[str, Method]:
    """The table of one server."""
    agent = Agent(hub)
    table = {
        "initialize": Method(p.Initialize, agent.initialize),
        "authenticate": Method(p.Authenticate, agent.authenticate),
        "session/new": Method(p.NewSession, agent.new),
        "session/load": Method(p.OpenSession, agent.load),
        "session/resume": Method(p.OpenSession, agent.resume),
        "session/list": Method(p.ListSessions, agent.list),
        "session/close": Method(p.OfSession, agent.close),
        "session/delete": Method(p.OfSession, agent.delete),
        "session/prompt": Method(p.SendPrompt, agent.prompt),
        "session/cancel": Method(p.OfSession, agent.cancel),
        "session/set_mode": Method(p.SetMode, agent.set_mode),
        "session/set_config_option": Method(p.SetConfigOption, agent.set_config_option),
        "_etude/attach": Method(p.Attach, agent.attach),
        "_etude/steer": Method(p.Steer, agent.steer),
        "_etude/feedback": Method(p.Feedback, agent.feedback),
        "_etude/heartbeat": Method(p.Ping, agent.heartbeat),
    }
    return {name: Method(method.params, _clearly(method.handle)) for name, method in table.items()}


class Agent:
    """What answers. Every method is called with the connection and its checked parameters."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub

    # ---- the connection

    async def initialize(self, connection: Connection, params: p.Initialize) -> dict[str, Any]:
        connection.capabilities = params.client_capabilities or {}
        connection.client = {
            key: str(value)[:200]
            for key, value in (params.client_info or {}).items()
            if key in ("name", "title", "version") and value is not None
        }
        meta = connection.capabilities.get("_meta")
        connection.speaks_etude = isinstance(meta, dict) and bool(meta.get("etude"))
        connection.ready = True
        settings = self.hub.settings
        return {
            "protocolVersion": PROTOCOL_VERSION,
            "agentInfo": {"name": "etude", "title": "Etude", "version": VERSION},
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": False, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": True, "sse": False},
                "sessionCapabilities": {"list": {}, "resume": {}, "close": {}, "delete": {}},
            },
            "authMethods": [],
            "_meta": {
                "etude": {
                    "version": VERSION,
                    "user": connection.user_id,
                    "workspaces": [str(path) for path in self.hub.workspaces],
                    "model": settings.agent.model,
                    "mode": settings.agent.mode,
                    "methods": ["_etude/attach", "_etude/steer", "_etude/feedback", "_etude/heartbeat"],
                }
            },
        }

    async def authenticate(self, connection: Connection, params: p.Authenticate) -> dict[str, Any]:
        """There is nothing to do: the token was checked before the connection was accepted."""
        return {}

    async def heartbeat(self, connection: Connection, params: p.Ping) -> dict[str, Any]:
        connection.beats = True
        return {}

    # ---- sessions

    async def new(self, connection: Connection, params: p.NewSession) -> Answer:
        mode, model = _wishes(params)
        servers = _mcp(params)
        try:
            if model is not None:
                await self.hub.opener.model(model)  # a session must not begin with a model that is not there
            live = await self.hub.create(params.cwd, connection, mode, model)
        except WorkspaceRefused as error:
            raise RpcError(INVALID_PARAMS, str(error), {"cwd": params.cwd}) from error
        except ModelError as error:
            raise RpcError(INVALID_PARAMS, error.message, {"model": model}) from error
        live.mcp = servers
        answer = {"sessionId": live.id, **self._settings(live)}
        return Answer(answer, lambda: self._watch(live, connection, live.delivered))

    async def load(self, connection: Connection, params: p.OpenSession) -> dict[str, Any]:
        """Replays the whole conversation, then answers, as the protocol wants it."""
        live = await self._reopen(connection, params)
        subscriber = live.attach(connection, 0, extended=connection.speaks_etude)
        await subscriber.caught_up()
        return self._settings(live)

    async def resume(self, connection: Connection, params: p.OpenSession) -> Answer:
        live = await self._reopen(connection, params)
        return Answer(self._settings(live), lambda: self._watch(live, connection, live.delivered))

    async def list(self, connection: Connection, params: p.ListSessions) -> dict[str, Any]:
        try:
            rows = await self.hub.store.sessions(
                user_id=connection.user_id, workspace=params.cwd, limit=PAGE + 1, before=params.cursor
            )
        except UnknownSession as error:
            raise RpcError(INVALID_PARAMS, f"unknown cursor {params.cursor}: list from the start") from error
        answer: dict[str, Any] = {"sessions": [_info(row) for row in rows[:PAGE]]}
        if len(rows) > PAGE:
            answer["nextCursor"] = rows[PAGE - 1].cursor
        return answer

    async def close(self, connection: Connection, params: p.OfSession) -> dict[str, Any]:
        live = await self._find(connection, params.session_id)
        await self.hub.close(live, connection)
        return {}

    async def delete(self, connection: Connection, params: p.OfSession) -> dict[str, Any]:
        with _clear_errors(params.session_id):
            await self.hub.delete(params.session_id, connection.user_id)
        return {}

    async def attach(self, connection: Connection, params: p.Attach) -> Answer:
        live = await self._find(connection, params.session_id)
        row = await self._look(live, connection)
        last = live.delivered
        reset = params.after_seq > last
        result: dict[str, Any] = {
            "lastSeq": last,
            "term": live.term,
            "state": self._state(live, row),
            **self._settings(live),
        }
        if reset:
            result["reset"] = True
        after = 0 if reset else params.after_seq
        return Answer(result, lambda: self._watch(live, connection, after, extended=True))

    # ---- turns

    async def prompt(self, connection: Connection, params: p.SendPrompt) -> dict[str, Any]:
        live = self.hub.loaded(params.session_id, connection.user_id)
        if live is None:
            live = await self._find(connection, params.session_id)
        if connection not in live.subscribers:
            self._watch(live, connection, live.delivered)
        given = params.meta.get("clientMessageId")
        ticket = live.prompt(_prompt(params, given), connection)
        live.editors.take(live.root, params.meta.get("editor"), connection)
        try:
            with _clear_errors(params.session_id):
                seq, kind = await asyncio.shield(ticket.accepted)
                subscriber = live.subscribers.get(connection)
                if given is not None or (subscriber is not None and subscriber.extended):
                    self._accepted(connection, live, ticket.prompt.message_id, seq, kind)
                ended = await asyncio.shield(ticket.done)
                if subscriber is not None:
                    await subscriber.caught_up()
        except asyncio.CancelledError:
            # Either the connection ended, and the turn goes on without it, or the client withdrew its
            # request, and the turn stops.
            if not connection.closed:
                live.cancel(ticket)
            raise
        return _prompt_result(ended)

    async def steer(self, connection: Connection, params: p.Steer) -> dict[str, Any]:
        live = await self._find(connection, params.session_id)
        prompt = _prompt(params, params.client_message_id)
        with _clear_errors(params.session_id):
            seq, kind = await live.steer(prompt, params.expected_turn, connection)
        return self._accepted(connection, live, prompt.message_id, seq, kind)

    async def cancel(self, connection: Connection, params: p.OfSession) -> None:
        if (live := self.hub.loaded(params.session_id, connection.user_id)) is not None:
            live.cancel()

    # ---- settings of a session

    async def set_mode(self, connection: Connection, params: p.SetMode) -> dict[str, Any]:
        await self._configure(connection, params.session_id, mode=params.mode_id)
        return {}

    async def set_config_option(self, connection: Connection, params: p.SetConfigOption) -> dict[str, Any]:
        if params.config_id == "mode":
            mode = p.SetMode.model_validate({"sessionId": params.session_id, "modeId": params.value}).mode_id
            live = await self._configure(connection, params.session_id, mode=mode)
        else:
            try:
                model = await self.hub.opener.model(params.value)
            except ModelError as error:
                raise RpcError(INVALID_PARAMS, error.message, {"model": params.value}) from error
            live = await self._configure(connection, params.session_id, model=model, profile=model.profile)
        return {"configOptions": self._settings(live)["configOptions"]}

    async def feedback(self, connection: Connection, params: p.Feedback) -> dict[str, Any]:
        live = await self._find(connection, params.session_id)
        record = events.Feedback(
            target=params.target, kind=params.kind, comment=params.comment, user_id=connection.user_id
        )
        with _clear_errors(params.session_id):
            session = await live.open()
            target = Target.of(params.target) if params.kind in ("reject", "undo") else None
            if target is None:
                return {"seq": (await session.record("feedback", record)).seq}
            return await taken_back(live, session, target, record, preview=params.preview)

    async def _configure(self, connection: Connection, session_id: str, **changes: Any) -> LiveSession:
        live = await self._find(connection, session_id)
        with _clear_errors(session_id):
            await (await live.open()).configure(**changes)
        return live

    # ---- what several methods need

    async def _find(self, connection: Connection, session_id: str) -> LiveSession:
        with _clear_errors(session_id):
            return await self.hub.find(session_id, connection.user_id)

    async def _reopen(self, connection: Connection, params: p.OpenSession) -> LiveSession:
        """The session with the MCP servers named now; they change nothing while it is open already."""
        servers = _mcp(params)
        live = await self._find(connection, params.session_id)
        await self._look(live, connection)
        live.mcp = servers or live.mcp
        return live

    async def _look(self, live: LiveSession, connection: Connection) -> SessionRow:
        """What the store says of a session. A turn that a crash broke off is closed in passing."""
        with _clear_errors(live.id):
            row = await self.hub.row(live.id, connection.user_id)
        if live.session is None:
            live.delivered = max(live.delivered, row.last_seq)
            if row.turn and row.ended is None and not row.running and not live.busy:
                live.revive()
        return row

    def _watch(
        self, live: LiveSession, connection: Connection, after: int, *, extended: bool | None = None
    ) -> None:
        if not connection.closed:
            extended = connection.speaks_etude if extended is None else extended
            live.attach(connection, after, extended=extended)

    def _accepted(
        self, connection: Connection, live: LiveSession, message_id: str, seq: int, kind: str
    ) -> dict[str, Any]:
        answer = {"sessionId": live.id, "clientMessageId": message_id, "seq": seq, "as": kind}
        connection.notify("_etude/accepted", answer)
        return answer

    def _settings(self, live: LiveSession) -> dict[str, Any]:
        mode, model = live.presenter.mode, live.presenter.model
        options = config_options(mode, model, self.hub.opener.model_names())
        return {"modes": mode_state(mode), "configOptions": options}

    def _state(self, live: LiveSession, row: SessionRow) -> dict[str, Any]:
        state = live.session.state if live.session is not None else None
        presenter = live.presenter
        return {
            "running": live.running,
            "turn": state.turn if state else row.turn,
            "mode": presenter.mode,
            "model": presenter.model,
            "title": (state.title if state else None) or session_title(row),
            "cwd": live.root,
            "queued": [item.message_id for item in state.queued] if state else [],
            "permissions": live.questions.open,
            "contextTokens": state.context_tokens if state else None,
            "contextWindow": self.hub.opener.window(presenter.model),
        }


def _mcp(params: p.NewSession) -> tuple[McpSpec, ...]:
    """The MCP servers a client names. Raises `RpcError` with what is wrong."""
    try:
        return tuple(McpSpec.of_client(server) for server in params.mcp_servers)
    except McpSpecError as error:
        raise RpcError(INVALID_PARAMS, str(error), {"mcpServers": len(params.mcp_servers)}) from error


class _clear_errors:
    """Turns what the rooms raise into answers a client can show."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        where = {"sessionId": self.session_id}
        if isinstance(error, UnknownSession):
            text = f"Unknown session {self.session_id}: list the sessions, or make a new one"
            raise RpcError(NOT_FOUND, text, where) from error
        if isinstance(error, SessionFailed | LogError | StoreError):
            raise RpcError(INTERNAL_ERROR, str(error), where) from error


def _clearly(handle: Handler) -> Handler:
    """A full disk or a session that another server holds is no defect, whatever method meets it."""

    async def clear(connection: Connection, params: Any) -> Any:
        with _clear_errors(getattr(params, "session_id", "")):
            return await handle(connection, params)

    return clear


def _wishes(params: p.NewSession) -> tuple[Any, Any]:
    """The mode and model that `_meta.etude` of `session/new` asks for; None = the server's own."""
    mode, model = params.meta.get("mode"), params.meta.get("model")
    if mode is not None and mode not in MODE_IDS:
        raise RpcError(INVALID_PARAMS, f"there is no mode {mode!r}: expected one of {', '.join(MODE_IDS)}")
    return mode, model if isinstance(model, str) and model else None


def _prompt(params: p.SendPrompt, given: Any) -> events.Prompt:
    if given is not None and not (isinstance(given, str) and 0 < len(given) <= 128):
        raise RpcError(INVALID_PARAMS, "clientMessageId must be a string of 1 to 128 characters")
    steps = params.meta.get("maxSteps")
    if steps is not None and not (type(steps) is int and steps > 0):
        raise RpcError(INVALID_PARAMS, "maxSteps must be a whole number above 0")
    return events.Prompt(
        message_id=given or str(ULID()),
        text=params.text,
        blocks=params.blocks,
        editor=editor_context(params.meta.get("editor")),
        max_steps=steps,
    )


def _prompt_result(ended: dict[str, Any]) -> dict[str, Any]:
    reason, usage = ended.get("reason", "end_turn"), ended.get("usage") or {}
    stop = STOP_REASONS.get(reason)
    if stop is None:
        message = ended.get("message") or f"the turn ended: {reason}"
        raise RpcError(INTERNAL_ERROR, message, {"reason": reason})
    result: dict[str, Any] = {"stopReason": stop}
    if usage.get("input") is not None:
        given = {"inputTokens": usage["input"], "outputTokens": usage.get("output") or 0}
        extra = {"cachedReadTokens": usage.get("cached"), "thoughtTokens": usage.get("reasoning")}
        given["totalTokens"] = given["inputTokens"] + given["outputTokens"]
        result["usage"] = given | {key: value for key, value in extra.items() if value is not None}
    if ended.get("message"):
        result["_meta"] = {"etude": {"reason": reason, "message": ended["message"]}}
    return result


def _info(row: SessionRow) -> dict[str, Any]:
    info: dict[str, Any] = {
        "sessionId": row.id,
        "cwd": row.workspace,
        "updatedAt": datetime.fromtimestamp(row.updated / 1e6, UTC).isoformat(),
    }
    title = session_title(row)
    return {**info, "title": title} if title else info
