"""A scripted model and the real application around it."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.inprocess import InProcess
from tests.support.scripted_model import ScriptedModel


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    """`server, model = await serve([turns], mode="ask")`; closed after the test."""
    async with AsyncExitStack() as stack:

        async def start(turns: Any = (), *, folder: Path = tmp_path, **options: Any) -> Any:
            keyed = options.pop("keyed", False)
            model = stack.enter_context(ScriptedModel(turns, keyed=keyed))
            flags = {"agent.model": "scripted", **options.pop("flags", {})}
            server = InProcess(folder, model_url=model.base_url, **options, **flags)
            return await stack.enter_async_context(server), model

        yield start
