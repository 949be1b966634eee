"""The layers of an index, in the order in which they are fed."""

import sqlite3
from pathlib import Path
from typing import Final

from tools.index.layer import Layer

LAYERS_VERSION: Final = 1
"""Raised whenever what a layer keeps changes: the index is then built anew, beside the old one."""


def layers(db: sqlite3.Connection, folder: Path) -> list[Layer]:
    """All layers of one index. Imports are lazy: only the child process pays for them."""
    from tools.index.definitions import Definitions
    from tools.index.uses import Uses

    return [Definitions(db, folder), Uses(db, folder)]
