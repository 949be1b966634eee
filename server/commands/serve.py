"""`etude serve`: the one agent host."""

import argparse
import asyncio
import logging
import os
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from server import places
from server.commands import embedded
from server.commands.models import choose
from server.commands.session_options import MODES
from server.failure import CommandFailed, Usage
from server.settings import Settings
from server.terminal.host import running
from server.terminal.lines import emit, say, warn

if TYPE_CHECKING:
    import uvicorn

    from server.discovery import ServerInfo


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "workspaces", nargs="*", metavar="WORKSPACE", help="folders to serve (default: this one)"
    )
    parser.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on; 0 = any free one (default: 4747)")
    parser.add_argument("--db", metavar="URL", help="database: sqlite:///PATH or postgresql://…")
    parser.add_argument(
        "--model", help="a [models.NAME] table, local[:PATH], openai:MODEL or recorded:SESSION"
    )
    parser.add_argument("--mode", choices=MODES, help="what needs approval (default: ask)")
    parser.add_argument("--no-open", action="store_true", help="do not open a browser")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON line when ready; logs go to stderr"
    )
    parser.add_argument("--private", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if os.environ.get("ETUDE_DEBUG") else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    workspaces = [places.from_caller(name).resolve() for name in arguments.workspaces or ["."]]
    settings = Settings.load(
        {
            "server.host": arguments.host,
            "server.port": arguments.port,
            "store.url": arguments.db,
            "agent.model": arguments.model,
            "agent.mode": arguments.mode,
        },
        os.environ,
        None,
    )
    progress = _progress(arguments)
    from server import serving
    from server.opener import WorkspaceRefused, check_workspace

    try:
        for workspace in workspaces:
            check_workspace(workspace)
        bound = serving.listen(settings.server.host, settings.server.port)
    except WorkspaceRefused as error:
        raise Usage(str(error)) from error
    except serving.CannotListen as error:
        raise CommandFailed(_ours(settings.server.port) or str(error)) from error
    with bound:
        settings, reason = asyncio.run(_with_model(settings, progress))
        serving.run(_serve(arguments, settings, reason, workspaces, bound))
    return 0


def _ours(port: int) -> str | None:
    """What to say where the port is taken by this user's own server: how to get there."""
    host = running()
    if host is None or urlsplit(host.url).port != port:
        return None
    code = host.post("/api/code")["code"]
    return (
        f"your server runs at {host.url} already, and `{places.typed()} chat` uses it in any folder. "
        f"A new link to its page:\n\n  {host.url}/#code={code}\n"
    )


async def _with_model(settings: Settings, progress: Callable[[str], None]) -> tuple[Settings, str]:
    """The settings with a model in them, and why it is that one. May install the embedded model."""
    from agent.models.catalog import open_model
    from agent.models.client import ModelError

    try:
        name, reason = await choose(settings)
    except ModelError as error:
        raise Usage(error.message) from error
    configured = settings.models.get(name)
    kind = configured.provider if configured else name.partition(":")[0]
    if kind == "local":
        await asyncio.to_thread(embedded.ensure, progress)
    elif kind != "recorded":
        try:
            await open_model(name, models=settings.models, cache_dir=places.cache_dir()).close()
        except ModelError as error:
            raise Usage(error.message) from error
    agent = settings.agent.model_copy(update={"model": name})
    return settings.model_copy(update={"agent": agent}), reason


async def _serve(
    arguments: argparse.Namespace,
    settings: Settings,
    reason: str,
    workspaces: list[Path],
    bound: socket.socket,
) -> int:
    from server import serving
    from server.app import create_app
    from server.auth import TokenError, own_token
    from server.store import Store, StoreError

    try:
        store = await Store.open(settings.store.url)
    except StoreError as error:
        raise CommandFailed(str(error)) from error
    try:
        token = secrets.token_urlsafe(32) if arguments.private else own_token(places.data_dir() / "token")
        app = create_app(settings, store, token, workspaces)
        app.state.hub.opener.secrets.guard(logging.getLogger().handlers)
        warning: asyncio.Task[None] | None = None

        def ready(info: "ServerInfo") -> None:
            nonlocal warning
            _announce(arguments, settings, reason, workspaces, info, app.state.codes.mint(token))
            warning = asyncio.get_running_loop().create_task(_warn_unconfined())

        server, served = serving.start(app, bound, token, ready, public=not arguments.private)
        if arguments.private:
            _end_with_parent(server)
        await served
        if warning is not None:
            warning.cancel()
    except TokenError as error:
        raise CommandFailed(str(error)) from error
    finally:
        await store.close()
    return 0


def _end_with_parent(server: "uvicorn.Server") -> None:
    """Standard input of a private server ends when its client does, however that ends."""
    loop, parent = asyncio.get_running_loop(), sys.stdin.fileno()

    def on_input() -> None:
        if not os.read(parent, 4096):
            loop.remove_reader(parent)
            server.should_exit = True

    loop.add_reader(parent, on_input)


def _announce(
    arguments: argparse.Namespace,
    settings: Settings,
    reason: str,
    workspaces: list[Path],
    info: "ServerInfo",
    code: str,
) -> None:
    page = f"{info.url}/#code={code}"
    if arguments.json:
        emit(
            {"url": info.url, "token": info.token, "port": int(info.url.rpartition(":")[2]), "pid": info.pid}
        )
    else:
        say(f"Etude {info.version} serves {', '.join(map(str, workspaces))}")
        say(f"model: {settings.agent.model} ({reason})   mode: {settings.agent.mode}")
        say(f"\n  {page}\n")
        say(
            "The link works once, for ten minutes. Ctrl-C stops the server; "
            f"`{places.typed()} chat` talks in a terminal."
        )
        sys.stdout.flush()
    for workspace in workspaces:
        for warning in settings.for_workspace(workspace).warnings:
            warn(f"warning: {warning}")
    if not arguments.no_open and not arguments.private and _has_display():
        threading.Thread(target=webbrowser.open, args=(page,), name="open-browser", daemon=True).start()


async def _warn_unconfined() -> None:
    from tools.sandbox import probed

    report = await probed()
    if not report.confined:
        warn(f"warning: commands will run unconfined: {report.reason} (`etude doctor` says what to do)")
    elif report.why_not:
        warn(f"warning: commands run in the weaker tier {report.tier}: {report.why_not}")


def _has_display() -> bool:
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _progress(arguments: argparse.Namespace) -> Callable[[str], None]:
    """Where news of a long start go: to the client of a private server, else to the person."""
    return (lambda text: emit({"progress": text})) if arguments.private else warn
