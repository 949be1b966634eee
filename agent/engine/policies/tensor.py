"""A tensor as its bytes, and the safetensors file it lies in; no machine-learning library is needed."""

import json
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from math import prod
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from agent.engine.protocol import EngineError

ITEM_BYTES: Final = {"BF16": 2, "F16": 2, "F32": 4}
_HEADER_LIMIT: Final = 100_000_000


class BrokenPolicy(EngineError):
    """A version on disk is incomplete, damaged or does not fit its base; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """`data` are the raw little-endian bytes (uint8, one-dimensional) of `shape` items of `dtype`."""

    dtype: str
    shape: tuple[int, ...]
    data: NDArray[np.uint8]

    def __post_init__(self) -> None:
        size = ITEM_BYTES.get(self.dtype)
        if size is None:
            raise BrokenPolicy(f"Tensor type {self.dtype!r} is not one of {', '.join(ITEM_BYTES)}.")
        if self.data.size != prod(self.shape) * size:
            raise BrokenPolicy(f"A tensor of shape {self.shape} has {self.data.size} bytes.")

    def digest(self) -> str:
        """Of type, shape and bytes."""
        state = blake2b(f"{self.dtype}{list(self.shape)}".encode(), digest_size=32)
        state.update(self.data.data)
        return state.hexdigest()


def save(file: BinaryIO, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file, one tensor after the other."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, tensor in tensors.items():
        end = at + tensor.data.size
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [at, end]}
        at = end
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    file.write(struct.pack("<Q", len(raw)) + raw)
    for tensor in tensors.values():
        file.write(tensor.data.data)


def mapped(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file; their bytes are read from disk as they are used."""
    try:
        with path.open("rb") as file:
            whole = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
        (length,) = struct.unpack("<Q", whole[:8].tobytes())
        if length > min(_HEADER_LIMIT, whole.size - 8):
            raise BrokenPolicy(f"{path} is cut short or no safetensors file.")
        header = json.loads(whole[8 : 8 + length].tobytes())
        header.pop("__metadata__", None)
        body = whole[8 + length :]
        return {
            name: Tensor(
                entry["dtype"],
                tuple(entry["shape"]),
                body[entry["data_offsets"][0] : entry["data_offsets"][1]],
            )
            for name, entry in header.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, struct.error) as error:
        raise BrokenPolicy(f"{path} cannot be read as safetensors: {error}.") from error
