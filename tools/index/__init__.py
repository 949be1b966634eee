"""The index of a workspace: what is where in its files, kept current by a child process."""

from tools.index.eviction import evict
from tools.index.index import Index
from tools.index.state import State

__all__ = ["Index", "State", "evict"]
