"""What a workspace was when the present turn began, for tools that compare."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tools.snapshots import SnapshotStore


@dataclass(slots=True)
class History:
    """`turn_tree` names the snapshot of the turn's beginning; equal names mean equal files."""

    store: "SnapshotStore"
    root: Path
    turn_tree: str

    async def now(self) -> str:
        """The snapshot of the workspace as it is."""
        return (await self.store.take(self.root)).tree

    async def changed(self) -> dict[str, bytes | None]:
        """Regular files that differ from when the turn began, with their content of then; None = there was
        none. What snapshots leave out is not among them."""
        found: dict[str, bytes | None] = {}
        for change in await self.store.diff(self.turn_tree, await self.now()):
            old, new = change.before, change.after
            if "file" not in (old and old.type, new and new.type):
                continue
            known = old is not None and old.type == "file"
            found[os.fsdecode(change.path)] = await self.store.read(old.name) if old and known else None
        return found
