"""Which checkers a set of files concerns, and in which folder each of them runs."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from tools.diagnostics.checkers import CHECKERS, Checker
from tools.errors import ToolError
from tools.files import read_bytes, stat

_CONFIGURATION: Final = 256 * 1024


def choose(root: Path, paths: Iterable[str]) -> list[tuple[Checker, Path, list[str]]]:
    """Every checker that is for one of the files, with its folder (absolute) and those files, in the order
    of `CHECKERS`. Blocks: it looks for the files that say a project uses a checker."""
    known: dict[tuple[str, tuple[str, ...]], bool] = {}
    chosen: dict[tuple[str, Path], list[str]] = defaultdict(list)
    listed = list(paths)
    for checker in CHECKERS:
        for path in listed:
            if PurePosixPath(path).suffix.lower() not in checker.suffixes:
                continue
            folder = _folder(root, checker.markers, path, known)
            if folder is not None:
                chosen[checker.name, folder].append(path)
    by_name = {checker.name: checker for checker in CHECKERS}
    return [(by_name[name], folder, files) for (name, folder), files in chosen.items()]


def _folder(
    root: Path, markers: Sequence[str], path: str, known: dict[tuple[str, tuple[str, ...]], bool]
) -> Path | None:
    """The nearest folder above a file with one of the markers."""
    if not markers:
        return root
    for folder in PurePosixPath(path).parents:
        key = (str(folder), tuple(markers))
        if key not in known:
            known[key] = any(_marked(root, folder, marker) for marker in markers)
        if known[key]:
            return root / folder
    return None


def _marked(root: Path, folder: PurePosixPath, marker: str) -> bool:
    name, _, text = marker.partition("#")
    path = str(folder / name)
    try:
        entry = stat(root, path)
        if entry is None or entry.kind != "file":
            return False
        return not text or text.encode() in read_bytes(root, path, _CONFIGURATION)[0]
    except ToolError:
        return False
