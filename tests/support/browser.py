"""A real Chromium on a real server's chat page, and what a person sees in it."""

import hashlib
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import Browser, ConsoleMessage, Page, ViewportSize, expect, sync_playwright

from tests.support.scripted_model import ScriptedModel
from tests.support.served import Served

ROOT = Path(__file__).parents[2]
WEB, STATIC = ROOT / "extension" / "web", ROOT / "server" / "static"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DESKTOP = ViewportSize(width=1280, height=860)
PHONE = ViewportSize(width=390, height=800)
WAIT_MS = 20_000

_TRANSCRIPT = """() => Array.from(document.querySelectorAll('.items[role=log] .item'), (item) => [
  item.dataset.id, item.dataset.phase ?? '', item.textContent])"""


class Scripted(NamedTuple):
    server: Served
    model: ScriptedModel


def build_page() -> None:
    """Build the web bundle unless it was built from these very sources."""
    manifest = STATIC / "manifest.json"
    known = json.loads(manifest.read_text())["sources"] if manifest.is_file() else {}
    files = [path for path in WEB.rglob("*") if path.suffix in (".ts", ".css", ".html", ".svg")]
    now = {
        path.relative_to(WEB).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if not path.name.endswith(".test.ts")
    }
    if now == known:
        return
    assert (ROOT / "extension" / "node_modules").is_dir(), "run `npm ci` in extension/ first"
    subprocess.run(["node", "build.mjs"], cwd=ROOT / "extension", check=True, capture_output=True)


@contextmanager
def chromium() -> Iterator[Browser]:
    """The system's Chromium, without a download."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert path is not None, "these tests need Chromium: apt-get install chromium"
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


class ChatPage:
    """One browser profile with the chat page of a server. `problems` holds what the console reported."""

    def __init__(
        self, browser: Browser, server: Served, viewport: ViewportSize = DESKTOP, **options: Any
    ) -> None:
        self.server = server
        self.context = browser.new_context(viewport=viewport, **options)
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.problems: list[str] = []
        self.foreign: list[str] = []
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self._requested(request.url))

    def open(self, session: str | None = None) -> "ChatPage":
        """Enter with a one-time code, as the printed URL does."""
        suffix = f"&s={session}" if session else ""
        self.page.goto(f"{self.server.url}/#code={one_time_code(self.server)}{suffix}")
        expect(self.page.locator(".composer textarea")).to_be_visible()
        return self

    def close(self) -> None:
        self.context.close()

    @property
    def session(self) -> str:
        """The session that the address names."""
        expect(self.page).to_have_url(re.compile(r"#s=\w+"))
        return self.page.url.partition("#s=")[2]

    def send(self, text: str, key: str = "Enter") -> None:
        self.page.fill(".composer textarea", text)
        self.page.press(".composer textarea", key)

    def answer(self, kind: str) -> None:
        """Answer the open question with the option of this kind."""
        button = self.page.locator(f".approval [data-kind={kind}]")
        button.click()
        expect(button).to_have_count(0)

    def wait_for_end(self, turns: int = 1) -> None:
        """Until so many turns have ended and everything of them is drawn."""
        ends = self.page.locator('.transcript:not([hidden]) .item.notice[data-id^="notice:"]')
        expect(ends).to_have_count(turns)
        expect(self.page.locator(".round.stop")).to_be_hidden()

    def transcript(self) -> list[list[str]]:
        """Every item in order: its id, the phase of a call, its text."""
        return self.page.evaluate(_TRANSCRIPT)

    def transcript_at_end(self, other: "ChatPage") -> list[list[str]]:
        """The transcript, once it is as long as that of a page that has seen everything."""
        expect(self.page.locator(".items[role=log] .item")).to_have_count(len(other.transcript()))
        expect(self.page.locator(".items[role=log] .item:empty")).to_have_count(0)
        return self.transcript()

    def reads(self, text: str) -> None:
        expect(self.page.locator(".items[role=log]")).to_contain_text(text)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def _requested(self, url: str) -> None:
        if not re.match(rf"{re.escape(self.server.url)}/|data:|blob:", url):
            self.foreign.append(url)


def one_time_code(server: Served) -> str:
    request = urllib.request.Request(
        f"{server.url}/api/code", method="POST", headers={"Authorization": f"Bearer {server.token}"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)["code"]


Open = Callable[..., ChatPage]
"""Opens the page of a server, on a session if one is named; options go to `ChatPage`."""
Serve = Callable[..., Scripted]
"""Starts a scripted model (its turns come first) and a server of it; the rest goes to `Served`."""
