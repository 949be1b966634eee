"""The layers of an index, in the order in which they are fed."""

import os
import sqlite3
from pathlib import Path
from typing import Final

from tools.index.layer import Layer

LAYERS_VERSION: Final = 2
"""Raised whenever what a layer keeps changes: the index is then built anew, beside the old one."""


def layers(db: sqlite3.Connection, folder: Path) -> list[Layer]:
    """All layers of one index. Imports are lazy: only the child process pays for them."""
    from tools.index.definitions import Definitions

    # Numpy must not reserve memory for a thread per core: the child has a limit, and needs one thread.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from tools.index.literal import Literal
    from tools.index.uses import Uses
    from tools.index.words import Words

    return [Definitions(db, folder), Uses(db, folder), Literal(db, folder), Words(db, folder)]
