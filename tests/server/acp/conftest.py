"""A scripted model and the real application around it, in the test's own event loop."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.inprocess import starting


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    """`server, model = await serve([turns], mode="ask")`; stopped after the test."""
    async with starting(tmp_path) as start:
        yield start
