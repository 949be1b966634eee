"""Whether indexing works on this machine: tried in a folder of its own, with a file of each language."""

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.index.indexer import Indexer
from tools.index.languages import EXTENSIONS
from tools.index.schema import database_of

PATIENCE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Trial:
    """`languages` that are parsed, `failing` ones that are not; `problem` says why there is no index."""

    languages: tuple[str, ...]
    failing: tuple[str, ...]
    problem: str = ""


async def trial() -> Trial:
    """Try it. Takes a second or two; what was made is deleted."""
    indexer = Indexer()
    try:
        root = await asyncio.to_thread(_written, indexer.temporary())
        state = await indexer.refresh(root, database_of(root, indexer.temporary()), None, PATIENCE_S)
        if not state.complete:
            return Trial((), tuple(EXTENSIONS), state.message or f"it did not end within {PATIENCE_S:.0f} s")
        parsed: dict[bool, list[str]] = {True: [], False: []}
        for language, endings in EXTENSIONS.items():
            name = f"a.{endings.split()[0]}"
            parsed[await indexer.parse(name, b"", PATIENCE_S) is not None].append(language)
        return Trial(tuple(parsed[True]), tuple(parsed[False]))
    finally:
        await indexer.close()


def _written(folder: Path) -> Path:
    root = Path(tempfile.mkdtemp(dir=folder)).resolve()
    for endings in EXTENSIONS.values():
        (root / f"a.{endings.split()[0]}").write_bytes(b"\n")
    return root
