"""The embedded model writes summaries on its own tokens."""

from pathlib import Path
from typing import Any

import pytest
from ulid import ULID

from agent.events import SessionCreated, draft
from agent.log import MemoryLog
from agent.models.local import LocalModel
from agent.session import Session
from tests.support.turns import data, turn
from tools.sandbox.policy import SandboxPolicy
from tools.workspace import Workspace

pytestmark = pytest.mark.local_model


async def test_the_request_extends_the_tokens_of_the_step_before_it(root: Path, model_cache: Path) -> None:
    model = LocalModel(None, model_cache)
    log = MemoryLog(str(ULID()))
    created: dict[str, Any] = {"workspace": str(root), "user_id": "local", "model": "local"}
    await log.submit(draft("session.created", SessionCreated(**created, mode="plan", profile="compact")))
    session = Session(log, [], Workspace(root, SandboxPolicy()), model, max_output=16)
    try:
        for event in log.events:
            session.state.apply(event)
        await turn(session, "Good morning. " + "The tide is low and the harbour is quiet. " * 20)
        session.summarize_at = 0.01
        events = await turn(session, "How are you?")
    finally:
        await session.close()
        await model.close()
    (summary,) = data(events, "summary")
    asked = [one for one in data(events, "generation") if one["purpose"] == "summary"]
    assert asked and summary["segment"] == 2
    assert asked[0]["tokens"]["context"] == "extend"
    assert asked[0]["usage"]["cached"] / asked[0]["usage"]["input"] > 0.6
    assert len(asked[0]["tokens"]["logprobs"]) == asked[0]["usage"]["output"]
    assert data(events, "turn.ended")[0]["reason"] in ("end_turn", "overlong")  # 16 tokens may cut it off
