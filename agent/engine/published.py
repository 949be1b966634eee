"""The weights of a policy's version, for PyTorch: a snapshot, or what changed since the version before."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from agent.engine import policies
from agent.engine.policies import BrokenPolicy

MANIFEST: Final = "manifest.json"
WEIGHTS: Final = "model.safetensors"
DTYPES: Final = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}


@dataclass(frozen=True, slots=True)
class Published:
    """`model` is the folder with the configuration: that of the snapshot that the version goes back to."""

    path: Path
    model: Path
    raw: dict[str, policies.Tensor]

    def tensors(self) -> dict[str, torch.Tensor]:
        """In fp32, by their names on disk."""
        return {
            name: torch.tensor(one.data).view(DTYPES[one.dtype]).reshape(one.shape).float()
            for name, one in self.raw.items()
        }


def published(path: Path, held: Published | None) -> Published | None:
    """Read and check a version's folder; None where the folder is no policy's version.

    `held` is what is loaded now: a delta on it is applied to it. Else, and for whoever missed a version, the
    nearest snapshot and the deltas since are read.

    Raises:
        BrokenPolicy: it is damaged, or something it needs is not there.
    """
    if not (path / MANIFEST).is_file():
        return None
    if not path.name.isdecimal():
        raise BrokenPolicy(f"{path} is not named after its version.")
    number = int(path.name)
    if held is not None and held.path == path.parent / str(number - 1) and not (path / WEIGHTS).exists():
        return Published(path, held.model, policies.read(path, held.raw))
    raw = policies.restore(path.parent, number)
    while not (path.parent / str(number) / WEIGHTS).exists():
        number -= 1
    return Published(path, path.parent / str(number), raw)
