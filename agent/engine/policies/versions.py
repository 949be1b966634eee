"""The versions of a policy in its folder: `N/` is a snapshot or the changes since version N − 1."""

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from agent.engine.policies.delta import applied, encoded
from agent.engine.policies.tensor import BrokenPolicy, Tensor, mapped, save

EVERY: Final = 10
"""A snapshot is written at least every so many versions."""

_FORMAT: Final = 1
_WEIGHTS, _DELTA, _MANIFEST = "model.safetensors", "delta.bin", "manifest.json"


def versions(policy: Path) -> list[int]:
    """The complete versions, ascending."""
    if not policy.is_dir():
        return []
    return sorted(int(entry.name) for entry in policy.iterdir() if entry.name.isdecimal())


def write(
    policy: Path,
    n: int,
    tensors: Mapping[str, Tensor],
    files: Path,
    previous: Mapping[str, Tensor] | None,
    aliases: Mapping[str, str] | None = None,
    every: int = EVERY,
) -> Path:
    """A delta against `previous` (version n − 1), or a snapshot when there is none or one is due."""
    recent = range(n - 1, n - every, -1)
    due = not any(_is_snapshot(policy / str(m)) for m in recent)
    if previous is None or due or not (policy / str(n - 1)).is_dir():
        return write_snapshot(policy, n, tensors, files, aliases)
    return write_delta(policy, n, previous, tensors)


def write_snapshot(
    policy: Path,
    n: int,
    tensors: Mapping[str, Tensor],
    files: Path,
    aliases: Mapping[str, str] | None = None,
) -> Path:
    """Version n as a model folder. `files`: a folder whose configuration and tokenizer files are copied.

    `aliases`: names of tied tensors, each to the name it is stored under.
    """
    ties = dict(aliases or {})
    own = {name: tensor for name, tensor in tensors.items() if name not in ties}
    _check_ties(ties, own)
    with _published(policy, n) as folder:
        listed: dict[str, Any] = {}
        for file in sorted(files.iterdir()):
            if file.is_file() and file.suffix in (".json", ".txt", ".model", ".jinja"):
                if file.name in (_MANIFEST, "model.safetensors.index.json"):
                    continue
                shutil.copyfile(file, folder / file.name)
                listed[file.name] = _file_digest(folder / file.name)
        with (folder / _WEIGHTS).open("wb") as out:
            save(out, own)
        listed[_WEIGHTS] = _file_digest(folder / _WEIGHTS)
        digests = {name: tensor.digest() for name, tensor in own.items()}
        manifest = {"kind": "snapshot", "files": listed, "tensors": digests, "aliases": ties}
        _seal(folder, n, manifest | {"result": _chained(digests, ties)})
    return policy / str(n)


def write_delta(policy: Path, n: int, base: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> Path:
    """Version n as its changes since version n − 1, which is there and whose tensors are `base`."""
    before = _manifest(policy / str(n - 1))
    ties = before["aliases"]
    own = {name: tensor for name, tensor in tensors.items() if name not in ties}
    if own.keys() != before["tensors"].keys() or not own.keys() <= base.keys():
        raise BrokenPolicy(f"Version {n} has other tensors than version {n - 1}; write a snapshot.")
    with _published(policy, n) as folder:
        parts: dict[str, Any] = {}
        digests: dict[str, str] = {}
        with (folder / _DELTA).open("wb") as out:
            for name, tensor in own.items():
                old = base[name]
                if (old.dtype, old.shape) != (tensor.dtype, tensor.shape):
                    raise BrokenPolicy(f"{name} has another type or shape than in version {n - 1}.")
                if old.digest() != before["tensors"][name]:
                    raise BrokenPolicy(f"The base given for {name} is not that of version {n - 1}.")
                start, state = out.tell(), blake2b(digest_size=32)
                for block in encoded(old, tensor):
                    state.update(block)
                    out.write(block)
                parts[name] = [start, out.tell(), state.hexdigest()]
                digests[name] = tensor.digest()
        manifest = {"kind": "delta", "base": before["result"], "parts": parts, "tensors": digests}
        _seal(folder, n, manifest | {"aliases": ties, "result": _chained(digests, ties)})
    return policy / str(n)


def read(path: Path, base: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """The tensors of a version's folder, tied names included. A delta needs the tensors of its base.

    Every byte is checked before anything is returned; `base` is not changed.
    """
    manifest = _manifest(path)
    ties, digests = manifest["aliases"], manifest["tensors"]
    if manifest["kind"] == "snapshot":
        for name, digest in manifest["files"].items():
            if not (path / name).is_file() or _file_digest(path / name) != digest:
                raise BrokenPolicy(f"{path / name} is missing or is not the file that was written.")
        own = mapped(path / _WEIGHTS)
    else:
        own = _applied(path, manifest, base)
    if {name: tensor.digest() for name, tensor in own.items()} != digests:
        raise BrokenPolicy(f"The tensors of {path} are not those that were written.")
    return own | {alias: own[name] for alias, name in ties.items()}


def restore(policy: Path, n: int) -> dict[str, Tensor]:
    """Version n from the nearest snapshot before it and the deltas since."""
    start = n
    while _manifest(policy / str(start))["kind"] == "delta":
        start -= 1
    tensors = read(policy / str(start))
    for m in range(start + 1, n + 1):
        tensors = read(policy / str(m), tensors)
    return tensors


def prune(policy: Path, keep: Collection[int]) -> list[int]:
    """Remove the versions that are neither to be kept nor needed to restore one that is; says which."""
    with _locked(policy):
        needed: set[int] = set()
        for n in keep:
            needed.add(n)
            while _manifest(policy / str(n))["kind"] == "delta":
                n -= 1
                needed.add(n)
        gone = [n for n in reversed(versions(policy)) if n not in needed]
        for n in gone:
            aside = Path(tempfile.mkdtemp(prefix=".gone-", dir=policy))
            (policy / str(n)).rename(aside / "version")
            shutil.rmtree(aside)
    return gone


def _applied(path: Path, manifest: dict[str, Any], base: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
    parts, ties = manifest["parts"], manifest["aliases"]
    if base is None or not parts.keys() <= base.keys():
        raise BrokenPolicy(f"{path} holds changes only; give the tensors of the version before it.")
    if _chained({name: base[name].digest() for name in parts}, ties) != manifest["base"]:
        raise BrokenPolicy(f"{path} was made against other tensors than those given as its base.")
    own: dict[str, Tensor] = {}
    try:
        with (path / _DELTA).open("rb") as file:
            for name, (start, end, digest) in parts.items():
                file.seek(start)
                blob = file.read(end - start)
                if blake2b(blob, digest_size=32).hexdigest() != digest:
                    raise BrokenPolicy(f"The changes of {name} in {path} are damaged.")
                own[name] = applied(base[name], blob)
            file.seek(max((end for _, end, _ in parts.values()), default=0))
            if file.read(1):
                raise BrokenPolicy(f"{path / _DELTA} is longer than was written.")
    except OSError as error:
        raise BrokenPolicy(f"{path / _DELTA} cannot be read: {error}.") from error
    return own


def _check_ties(ties: Mapping[str, str], own: Mapping[str, Tensor]) -> None:
    if missing := [name for name in ties.values() if name not in own]:
        raise BrokenPolicy(f"Tied names lead to tensors that are not there: {', '.join(missing)}.")


def _chained(digests: Mapping[str, str], ties: Mapping[str, str]) -> str:
    raw = json.dumps([sorted(digests.items()), sorted(ties.items())])
    return blake2b(raw.encode(), digest_size=32).hexdigest()


def _is_snapshot(path: Path) -> bool:
    return path.is_dir() and _manifest(path)["kind"] == "snapshot"


def _seal(folder: Path, n: int, manifest: dict[str, Any]) -> None:
    body = {"format": _FORMAT, "version": n} | manifest
    seal = blake2b(json.dumps(body, sort_keys=True).encode(), digest_size=32).hexdigest()
    (folder / _MANIFEST).write_text(json.dumps(body | {"seal": seal}, sort_keys=True))


def _manifest(path: Path) -> dict[str, Any]:
    try:
        raw = (path / _MANIFEST).read_bytes()
        body = json.loads(raw)
        seal = body.pop("seal")
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise BrokenPolicy(f"{path} is no complete version of a policy: {error}.") from error
    sealed = json.dumps(body, sort_keys=True).encode()
    written = json.dumps(body | {"seal": seal}, sort_keys=True).encode()
    if blake2b(sealed, digest_size=32).hexdigest() != seal or raw != written:
        raise BrokenPolicy(f"{path / _MANIFEST} is not as it was written.")
    if body["format"] != _FORMAT or str(body["version"]) != path.name:
        raise BrokenPolicy(f"{path} says it is version {body['version']}, format {body['format']}.")
    return body


def _file_digest(path: Path) -> str:
    state = blake2b(digest_size=32)
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            state.update(chunk)
    return state.hexdigest()


@contextmanager
def _locked(policy: Path) -> Iterator[None]:
    with (policy / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in (*policy.glob(".new-*"), *policy.glob(".gone-*")):
            shutil.rmtree(left)
        yield


@contextmanager
def _published(policy: Path, n: int) -> Iterator[Path]:
    """A folder that becomes version n when the block ends well, and vanishes when it does not."""
    policy.mkdir(parents=True, exist_ok=True)
    with _locked(policy):
        if (policy / str(n)).exists():
            raise BrokenPolicy(f"Version {n} of {policy.name} is there already; versions never change.")
        folder = Path(tempfile.mkdtemp(prefix=".new-", dir=policy))
        try:
            yield folder
            for path in (*folder.iterdir(), folder):
                _synced(path)
            folder.chmod(0o755)
            folder.rename(policy / str(n))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        _synced(policy)


def _synced(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
