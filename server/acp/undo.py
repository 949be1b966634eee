"""Reject and undo: what a person does not want of the agent's changes is taken back in the workspace."""

from typing import Any

from agent.events import Feedback
from agent.session import Session
from agent.undo import Target, take_back
from server.acp.connection import INVALID_PARAMS, RpcError
from server.live import LiveSession
from tools.errors import InvalidArguments
from tools.snapshots import SnapshotError

SHOWN_DIFF = 200_000
"""Characters of a file's diff in the answer."""


async def taken_back(
    live: LiveSession, session: Session, target: Target, feedback: Feedback, *, preview: bool
) -> dict[str, Any]:
    """Take back what the target names and record it; the answer says what changed, without secrets.

    `{seq, restored, files: [{path, diff, added, removed, conflicts}], kept: [{path, why}]}`; `seq` is of the
    feedback and `restored` of what was done, None for a preview or where nothing was to be done.

    Raises:
        RpcError: the target is unknown, a turn is running, or files cannot be read or written.
    """
    if live.busy and not preview:
        raise RpcError(
            INVALID_PARAMS,
            "The agent is working: stop it or let it finish, then take its changes back.",
            {"sessionId": live.id},
        )
    try:
        if preview:
            done = await take_back(session, await live.store.all_events(live.id), target, preview=True)
        else:
            # One after the other, and before the next turn: each plans from what the last one left.
            async with session.recovery:
                done = await take_back(session, await live.store.all_events(live.id), target)
    except (InvalidArguments, SnapshotError) as error:
        raise RpcError(INVALID_PARAMS, error.message, {"sessionId": live.id}) from error
    files = done.files()
    for one in files:
        one["diff"] = (await session.redaction.text(one["diff"]))[:SHOWN_DIFF]
    answer: dict[str, Any] = session.redaction.redactor.redact_value({"files": files})
    answer["kept"] = done.event.data.get("kept", []) if done.event is not None else []
    answer["seq"] = None if preview else (await session.record("feedback", feedback)).seq
    answer["restored"] = done.event.seq if done.event is not None else None
    return answer
