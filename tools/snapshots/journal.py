"""What is about to be changed in a workspace, written down first, so that a crash can be made good."""

import base64
import fcntl
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from tools.snapshots.applying import Applied, Step, apply
from tools.snapshots.durable import sync
from tools.snapshots.errors import DamagedStore
from tools.snapshots.manifest import Entry, parse
from tools.snapshots.objects import Objects, unwritable


def carry_out(
    objects: Objects,
    root: Path,
    steps: Sequence[Step],
    what: dict[str, Any],
    progress: Callable[[str], None] = lambda stage: None,
) -> Applied:
    """Change paths of a workspace with a journal beside it; `what` describes it for whoever finishes it.

    Raises:
        SnapshotError: as `apply`. The journal stays then: files may be gone whose successors found no room,
            and `finish` does the rest when there is some.
    """
    if not steps:
        return Applied()
    name = secrets.token_hex(8)
    content = {
        "v": 1,
        "root": base64.b64encode(os.fsencode(root)).decode(),
        "what": what,
        "steps": [[_packed(step.now), _packed(step.wanted)] for step in steps],
    }
    path = _folder(objects) / name
    try:
        descriptor = _write(path, orjson.dumps(content))
    except OSError as error:
        raise unwritable(objects.folder, error) from error
    try:
        progress("journal")
        done = apply(objects, root, steps, _temporary(name), progress)
        path.unlink()
        return done
    finally:
        os.close(descriptor)


def finish(objects: Objects, root: Path) -> Iterator[tuple[dict[str, Any], Applied]]:
    """Finish what a crash broke off in this workspace; gives what each was and what was done."""
    for path, descriptor in _abandoned(objects):
        try:
            content = orjson.loads(path.read_bytes())
            if base64.b64decode(content["root"]) != os.fsencode(root):
                continue
            steps = [_step(now, wanted) for now, wanted in content["steps"]]
            yield content["what"], apply(objects, root, steps, _temporary(path.name), again=True)
            path.unlink()
        except (orjson.JSONDecodeError, KeyError, ValueError) as error:
            raise DamagedStore(f"{path} is no journal: remove that file.") from error
        finally:
            os.close(descriptor)


def pending(objects: Objects) -> set[str]:
    """Names of content that unfinished changes still need."""
    names: set[str] = set()
    for path in _folder(objects).iterdir():
        try:
            content = orjson.loads(path.read_bytes())
        except (FileNotFoundError, orjson.JSONDecodeError):
            continue  # finished meanwhile, or being written: its content is young
        for sides in content["steps"]:
            names.update(entry.name for side in sides if (entry := _unpacked(side)) and entry.stored)
    return names


@contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _abandoned(objects: Objects) -> Iterator[tuple[Path, int]]:
    """Journals whose writer is gone, each locked for us."""
    for path in sorted(_folder(objects).iterdir()):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        if not path.exists() or path.suffix:
            os.close(descriptor)
            continue
        yield path, descriptor


def _write(path: Path, content: bytes) -> int:
    """The journal, durable and locked by us for as long as the descriptor is open."""
    temporary = path.with_suffix(".new")
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
        os.rename(temporary, path)
        with _closing(os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as folder:
            sync([folder])
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _folder(objects: Objects) -> Path:
    folder = objects.folder / "journal"
    folder.mkdir(exist_ok=True, mode=0o700)
    return folder


def _temporary(name: str) -> bytes:
    return b".etude-" + name.encode()


def _packed(entry: Entry | None) -> str | None:
    return None if entry is None else base64.b64encode(entry.line()).decode()


def _unpacked(text: str | None) -> Entry | None:
    return None if text is None else next(parse(base64.b64decode(text), "journal"))


def _step(now: str | None, wanted: str | None) -> Step:
    before, after = _unpacked(now), _unpacked(wanted)
    found = before or after
    if found is None:
        raise ValueError("a step without any side")
    return Step(found.path, before, after)
