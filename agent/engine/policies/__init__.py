"""Policies on disk: whole versions that model libraries load, and the changes between versions."""

from agent.engine.policies.tensor import BrokenPolicy, Tensor
from agent.engine.policies.versions import (
    prune,
    read,
    restore,
    versions,
    write,
    write_delta,
    write_snapshot,
)

__all__ = [
    "BrokenPolicy",
    "Tensor",
    "prune",
    "read",
    "restore",
    "versions",
    "write",
    "write_delta",
    "write_snapshot",
]
