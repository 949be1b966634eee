"""What can go wrong with snapshots; each error says what was expected and what to do."""

from tools.errors import EnvironmentFault


class SnapshotError(EnvironmentFault):
    """A snapshot could not be taken, read or restored. The workspace is as it was."""


class UnknownSnapshot(SnapshotError):
    """There is no such snapshot or content in the store."""


class DamagedStore(SnapshotError):
    """What the store holds under a name is not what the name says."""


class RestoreRefused(SnapshotError):
    """Restoring this snapshot could lose files: it is empty or does not cover the whole workspace."""
