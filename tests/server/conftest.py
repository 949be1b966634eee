"""Fixtures of the tests that drive the chat page in a real browser."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.support.browser import ChatPage, Open, Scripted, Serve, build_page, chromium
from tests.support.scripted_model import ScriptedModel
from tests.support.served import Served


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    build_page()
    with chromium() as browser:
        yield browser


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a scripted model and a server that talks to it."""
    with ExitStack() as stack:

        def start(turns: Any, *arguments: str, window: int | None = None, **options: Any) -> Scripted:
            model = stack.enter_context(ScriptedModel(turns, window=window))
            server = stack.enter_context(Served(*arguments, model_url=model.base_url, **options))
            return Scripted(server, model)

        yield start


@pytest.fixture
def opened(browser: Browser, serve: Serve) -> Iterator[Open]:  # pages close before their server does
    """Opens pages, and checks at the end that none had anything to complain about."""
    pages: list[ChatPage] = []

    def open_page(server: Served, session: str | None = None, **options: Any) -> ChatPage:
        pages.append(ChatPage(browser, server, **options))
        return pages[-1].open(session)

    yield open_page
    for page in pages:
        page.close()
        assert page.problems == []
        assert page.foreign == [], "the page asked another host"
