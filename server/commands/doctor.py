"""`etude doctor`: what works here, and what to do about what does not."""

import argparse
import asyncio
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from server import places
from server.commands import embedded
from server.failure import CommandFailed
from server.settings import Settings
from server.terminal.lines import emit, say
from server.terminal.style import Style

if TYPE_CHECKING:
    from agent.models.client import ModelClient
    from tools.sandbox.probe import SandboxReport

State = Literal["ok", "note", "broken"]
"""`note`: works, but less than it could. `broken`: something essential does not work."""

FREE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `remedy` says what to do about it; empty when nothing is."""

    name: str
    state: State
    found: str
    remedy: str = ""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.epilog = "Exit: 0 when everything essential works, 1 otherwise."
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    style = Style.of(sys.stdout)
    signs = {"ok": style.green("✓"), "note": style.yellow("!"), "broken": style.red("✗")}
    broken = False
    for finding in _findings():
        broken |= finding.state == "broken"
        if arguments.json:
            emit(asdict(finding))
            continue
        say(f"{signs[finding.state]} {finding.name}: {finding.found}")
        if finding.remedy:
            say(f"  → {finding.remedy}")
    return 1 if broken else 0


def _findings() -> "list[Finding]":
    try:
        settings = Settings.load({}, os.environ, None)
    except CommandFailed as error:
        first = Finding("configuration", "broken", str(error), "correct it; `etude config show` checks it")
        settings = Settings()
    else:
        exists = places.config_file().exists()
        first = Finding("configuration", "ok", str(places.config_file()) if exists else "defaults")
    checks: list[Callable[[Settings], Finding]] = [
        _python,
        _git,
        _ripgrep,
        _sandbox,
        _index,
        _data,
        _database,
        _server,
        _page,
        _node,
        _embedded,
        _model,
    ]
    return [first, *(check(settings) for check in checks), *_mcp(settings)]


def _python(settings: Settings) -> Finding:
    return Finding("python", "ok", f"{platform.python_version()} at {sys.executable}")


def _program(name: str, essential: bool, remedy: str, path: str | None = None) -> Finding:
    found = path or shutil.which(name)
    missing: State = "broken" if essential else "note"
    if found is None:
        return Finding(name, missing, "not found", remedy)
    try:
        answer = subprocess.run(
            [found, "--version"],
            capture_output=True,
            text=True,
            timeout=20,
            cwd=places.data_dir(),
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Finding(name, missing, f"{found} does not run ({error})", remedy)
    lines = answer.stdout.splitlines() or [""]
    return Finding(name, "ok", f"{lines[0].strip()} at {found}")


def _git(settings: Settings) -> Finding:
    return _program("git", False, "install git; without it, sessions lack the state of the repository")


def _ripgrep(settings: Settings) -> Finding:
    beside = Path(sys.executable).parent / "rg"
    path = str(beside) if beside.exists() else None
    return _program(
        "rg", True, "install the package `ripgrep` into this environment (pip install ripgrep==14.1.0)", path
    )


def _node(settings: Settings) -> Finding:
    return _program("node", False, "only needed to build the chat page from source: install Node 20 or newer")


def _sandbox(settings: Settings) -> Finding:
    """The tier that commands get, what it does not hold, and how to get a better one."""
    from tools.sandbox import probe
    from tools.sandbox.probe import probe_tier

    demanded = settings.sandbox.tier
    report = probe() if demanded == "auto" else probe_tier(demanded)
    if demanded == "none":
        better = "commands run unconfined, as sandbox.tier says; `auto` would use "
        return Finding("sandbox", "note", f"none: {better}{probe().tier}", "remove sandbox.tier")
    if not report.confined:
        state: State = "note" if demanded == "auto" else "broken"
        found = report.reason if demanded == "auto" else f"{demanded} was demanded: {report.reason}"
        return Finding("sandbox", state, found, report.remedy)
    limits = f"; limits by {', '.join(report.limits)}" if report.limits else ""
    open_to = f"; does not hold: {'; '.join(report.weaknesses)}"
    lacks = f"; does not have: {'; '.join(report.lacks)}" if report.lacks else ""
    found = f"{report.tier}: {_with_network(report, settings)}{limits}{open_to}{lacks}"
    if report.tier == "bubblewrap":
        return Finding("sandbox", "ok", found, report.remedy)
    why = f" (bubblewrap: {report.why_not})" if report.why_not else ""
    return Finding("sandbox", "note", found + why, report.remedy or 'sandbox.tier = "auto" uses bubblewrap')


def _index(settings: Settings) -> Finding:
    """Whether `search` and `symbols` work: the indexing process is started and reads all its languages."""
    from tools.errors import ToolError
    from tools.index.trial import trial

    remedy = "install Etude anew into this environment; until then `search` and `symbols` do not work"
    try:
        tried = asyncio.run(trial())
    except (OSError, ToolError) as error:
        return Finding("search index", "broken", f"cannot be made: {error}", remedy)
    if tried.problem:
        return Finding("search index", "broken", tried.problem, remedy)
    found = f"works, with {', '.join(tried.languages)}"
    if tried.failing:
        lacking = f"{found}; cannot parse {', '.join(tried.failing)}"
        return Finding("search index", "note", lacking, "install Etude anew into this environment")
    return Finding("search index", "ok", found)


def _with_network(report: "SandboxReport", settings: Settings) -> str:
    """What a tier is, with the network that the settings give: it is tried without one."""
    network, reason = settings.sandbox.network, report.reason.rstrip(".")
    if network is True:
        return reason.removesuffix(", without network") + ", on this machine's network"
    if network and report.tier == "bubblewrap":
        return reason.removesuffix("out network") + f" no network but {', '.join(network)}"
    return reason


def _mcp(settings: Settings) -> list[Finding]:
    """The configured MCP servers: whether their programs and variables are there. None is started."""
    findings: list[Finding] = []
    for name, server in settings.mcp.items():
        called = f"MCP server {name}"
        named = [*server.env_from, *([server.token_env] if server.token_env else [])]
        unset = [variable for variable in named if not os.environ.get(variable)]
        if server.command and shutil.which(server.command) is None:
            remedy = f"install it, or correct mcp.{name}.command"
            findings.append(Finding(called, "note", f"there is no program {server.command!r}", remedy))
        elif unset:
            found = f"{', '.join(unset)} is not set here"
            findings.append(Finding(called, "note", found, "set it in the environment of `etude serve`"))
        else:
            findings.append(Finding(called, "ok", server.url or shutil.which(server.command) or "nothing"))
    return findings


def _data(settings: Settings) -> Finding:
    folder = places.data_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        probe = folder / f".doctor-{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Finding(
            "data folder", "broken", f"{folder}: {error.strerror}", "make it writable, or set ETUDE_DATA"
        )
    found = f"{folder}, {free / 1e9:.1f} GB free"
    if free < FREE_BYTES:
        return Finding("data folder", "note", found, "make room: a full disk stops every session")
    return Finding("data folder", "ok", found)


def _database(settings: Settings) -> Finding:
    from server.commands.config import without_password
    from server.commands.database import with_store

    url = without_password(settings.store.url)
    try:
        rows = with_store(None, lambda store: store.sessions(limit=1))
    except CommandFailed as error:
        return Finding("database", "broken", f"{url}: {error}", "see `store.url` in `etude config show`")
    return Finding("database", "ok", f"{url}, {'in use' if rows else 'empty'}")


def _server(settings: Settings) -> Finding:
    from server.terminal.host import running

    if host := running():
        return Finding("server", "ok", f"running at {host.url}")
    address = (settings.server.host, settings.server.port)
    with socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET) as test:
        test.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            test.bind(address)
        except OSError as error:
            return Finding(
                "server",
                "note",
                f"not running; {address[0]} port {address[1]}: {error.strerror}",
                "another program has the port: use `etude serve --port 0` or set server.port",
            )
    return Finding("server", "ok", f"not running; {address[0]} port {address[1]} is free")


def _page(settings: Settings) -> Finding:
    index = Path(__file__).resolve().parents[1] / "static" / "index.html"
    if index.exists():
        return Finding("chat page", "ok", "built")
    return Finding(
        "chat page", "note", "not built; the terminal and editors work without it", "run `make web`"
    )


def _embedded(settings: Settings) -> Finding:
    if absent := embedded.missing():
        found = f"not installed ({', '.join(absent)} missing)"
        return Finding(
            "embedded model", "ok", found, "only needed without another model: `etude models install`"
        )
    return Finding("embedded model", "ok", "installed")


def _model(settings: Settings) -> Finding:
    from agent.models.catalog import open_model
    from agent.models.client import ModelError
    from server.commands.models import choose

    try:
        name, reason = asyncio.run(choose(settings))
        if name.partition(":")[0] == "local" and embedded.missing():
            if embedded.in_own_environment():
                return Finding("model", "note", f"local ({reason})", "it is installed when it is first used")
            return Finding("model", "broken", f"none: {reason}", "`etude models install`, or configure one")
        if name.partition(":")[0] not in ("local", "recorded"):
            asyncio.run(_reach(open_model(name, models=settings.models, cache_dir=places.cache_dir())))
    except (ModelError, CommandFailed) as error:
        return Finding("model", "broken", str(error), "`etude models` lists what there is; --model chooses")
    return Finding("model", "ok", f"{name} ({reason})")


async def _reach(model: "ModelClient") -> None:
    """Ask the endpoint for its models: that needs address and key, and costs nothing."""
    ask = getattr(model, "models", None)
    try:
        if ask is not None:
            await ask()
    finally:
        await model.close()
