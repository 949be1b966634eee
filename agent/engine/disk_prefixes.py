"""Keys and values of lasting beginnings (system prompt, tools), kept on disk from one start to the next."""

import logging
import os
import secrets
from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from agent.engine.prefixes import Prefix
from agent.engine.ragged import RaggedKept

log = logging.getLogger(__name__)

FILES: Final = 8
"""Beginnings that are kept; those that were used longest ago go first."""


class DiskPrefixes:
    """One folder, shared by all models: a file is found by the weights and the ids that it was computed from.

    Belongs to the engine's thread. A file that cannot be read or is not what was written is removed and
    computed anew; a disk that cannot be written costs nothing but the time it would have saved.
    """

    def __init__(self, folder: Path, weights: Mapping[str, Tensor]) -> None:
        """`weights` are all those of the network."""
        self.folder = folder
        digest = blake2b(digest_size=20)
        for name, tensor in weights.items():
            digest.update(f"{name}{list(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
        self._weights = digest.digest()
        self._there: set[Path] = set()

    def take(self, ids: Sequence[int], version: int) -> Prefix | None:
        """What is kept of exactly these ids."""
        path = self._path(ids)
        try:
            with safe_open(path, "pt") as file:
                held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
                said = (file.metadata() or {}).get("checksum")
            if said != _checksum(held):
                raise ValueError("it is not what was written")
            os.utime(path)
        except FileNotFoundError:
            return None
        except (OSError, SafetensorError, ValueError) as error:
            log.warning("%s is left out: %s", path, error)
            with suppress(OSError):
                path.unlink()
            return None
        self._there.add(path)
        layers = [
            (held[f"keys.{n}"], held[f"values.{n}"]) for n in range(sum("keys" in name for name in held))
        ]
        routes = held["routes"].numpy() if "routes" in held else None
        return Prefix(np.array(ids, dtype=np.int64), RaggedKept(layers), routes, version)

    def lacks(self, ids: Sequence[int]) -> bool:
        """Whether these ids are worth putting."""
        path = self._path(ids)
        if path not in self._there and path.exists():
            self._there.add(path)
        return path not in self._there

    def put(self, ids: Sequence[int], kept: RaggedKept, routes: NDArray[np.int16] | None) -> None:
        """Keep what was computed of these ids."""
        path = self._path(ids)
        held = {f"keys.{n}": keys.cpu().contiguous() for n, (keys, _) in enumerate(kept.layers)}
        held |= {f"values.{n}": values.cpu().contiguous() for n, (_, values) in enumerate(kept.layers)}
        held |= {} if routes is None else {"routes": torch.from_numpy(routes.copy())}
        self._there.add(path)
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            save_file(held, temporary, metadata={"checksum": _checksum(held)})
            os.replace(temporary, path)
            self._make_room()
        except (OSError, SafetensorError) as error:
            log.warning("the keys and values of a prompt are not kept in %s: %s", self.folder, error)
            with suppress(OSError):
                temporary.unlink()

    def _make_room(self) -> None:
        files = sorted(self.folder.glob("*.prefix"), key=lambda path: path.stat().st_mtime)
        for path in files[:-FILES]:
            path.unlink(missing_ok=True)

    def _path(self, ids: Sequence[int]) -> Path:
        name = blake2b(self._weights + array("q", ids).tobytes(), digest_size=20).hexdigest()
        return self.folder / f"{name}.prefix"


def _checksum(held: Mapping[str, Any]) -> str:
    digest = blake2b(digest_size=20)
    for name in sorted(held):
        digest.update(f"{name}{list(held[name].shape)}".encode())
        digest.update(held[name].contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
