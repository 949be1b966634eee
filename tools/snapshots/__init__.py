"""Snapshots of a workspace: its state at any moment, kept apart from the repository and from the log."""

from tools.snapshots.applying import Applied, Step
from tools.snapshots.changes import Change, Changes
from tools.snapshots.errors import DamagedStore, RestoreRefused, SnapshotError, UnknownSnapshot
from tools.snapshots.manifest import Entry
from tools.snapshots.store import Restored, SnapshotStore
from tools.snapshots.sweeping import Swept
from tools.snapshots.taking import LeftOut, Snapshot
from tools.snapshots.undoing import FilePlan, UndoPlan, file_sides
from tools.snapshots.walk import Limits

__all__ = [
    "Applied",
    "Change",
    "Changes",
    "DamagedStore",
    "Entry",
    "FilePlan",
    "LeftOut",
    "Limits",
    "RestoreRefused",
    "Restored",
    "Snapshot",
    "SnapshotError",
    "SnapshotStore",
    "Step",
    "Swept",
    "UndoPlan",
    "UnknownSnapshot",
    "file_sides",
]
