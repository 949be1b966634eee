"""What is left of a deleted session beside the database: its snapshots and the contents of its edits."""

import logging
from collections.abc import Iterable
from typing import Final

from tools.snapshots import SnapshotError, SnapshotStore

log = logging.getLogger(__name__)

YOUNG_S: Final = 120.0
"""Seconds: what is younger stays for now, for it may be another session's that is being written."""


async def forget_files(snapshots: SnapshotStore, session_id: str, forks: Iterable[str]) -> None:
    """Delete what only this session needed; its forks, which read its log, keep what it had."""
    await release_files(snapshots, session_id, forks)
    try:
        await snapshots.sweep(young_s=YOUNG_S)
    except SnapshotError as error:
        log.error("the files of session %s were not deleted: %s", session_id, error)


async def release_files(snapshots: SnapshotStore, session_id: str, forks: Iterable[str]) -> None:
    """The same, but for a sweep that comes later."""
    try:
        await snapshots.release(session_id, forks)
    except SnapshotError as error:
        log.error("the files of session %s were not deleted: %s", session_id, error)
