"""Takes a rule back: in every log that holds it, and in every session that is open."""

from collections.abc import Mapping

from agent.events import ConfigChanged, draft
from agent.session import Session
from server.store import RuleRow, Store, UnknownSession


async def revoke(store: Store, row: RuleRow, opened: Mapping[str, Session]) -> None:
    """Record that a rule holds no more. Forks get the record too: they may have inherited it.

    `opened` are the sessions of this process that have their log open.

    Raises:
        SessionBusy: another process writes one of the logs; what was recorded before stays recorded.
        StoreError: a log cannot be written.
    """
    record = ConfigChanged(revoked=[row.rule])
    for id in await store.inheritors(row.sessions):
        if (session := opened.get(id)) is not None:
            await session.record("config.changed", record)
            continue
        try:
            turn = (await store.session(id)).turn
            log = await store.lease(id)
        except UnknownSession:  # deleted meanwhile, and its rules with it
            continue
        try:
            await log.submit(draft("config.changed", record, turn=turn, step=0))
        finally:
            await log.release()
