"""What changed between two states of a tensor: where (gaps) and by how much, in compressed blocks."""

import struct
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import zstandard
from numpy.typing import NDArray

from agent.engine.policies.tensor import ITEM_BYTES, BrokenPolicy, Tensor

BLOCK: Final = 1 << 22
"""Items encoded at once; it bounds the memory either side needs beyond the tensors."""

_HEAD: Final = struct.Struct("<II")


def encoded(old: Tensor, new: Tensor) -> Iterator[bytes]:
    """Blocks: count of changed items, compressed size, then gaps and differences as planes of bytes.

    A difference is new − old of the items' bits as unsigned integers; small steps make small numbers.
    """
    before, after = _items(old), _items(new)
    packer = zstandard.ZstdCompressor(level=3)
    for start in range(0, after.size, BLOCK):
        a, b = before[start : start + BLOCK], after[start : start + BLOCK]
        where = np.flatnonzero(a != b)
        gaps = np.diff(where, prepend=-1).astype("<u4") - np.uint32(1)
        packed = packer.compress(_planes(gaps) + _planes(b[where] - a[where])) if where.size else b""
        yield _HEAD.pack(where.size, len(packed)) + packed


def applied(old: Tensor, blob: bytes | memoryview) -> Tensor:
    """A new tensor; `old` stays as it is."""
    result = old.data.copy()
    items = result.view(f"<u{ITEM_BYTES[old.dtype]}")
    width, at = items.itemsize, 0
    unpacker = zstandard.ZstdDecompressor()
    try:
        for start in range(0, items.size, BLOCK):
            block = items[start : start + BLOCK]
            count, size = _HEAD.unpack_from(blob, at)
            at += _HEAD.size
            if count > block.size or at + size > len(blob):
                raise BrokenPolicy("A block of the delta is longer than its tensor or its file.")
            if count:
                raw = unpacker.decompress(blob[at : at + size], max_output_size=count * (4 + width))
                if len(raw) != count * (4 + width):
                    raise BrokenPolicy("A block of the delta has another length than it says.")
                gaps = _joined(raw[: 4 * count], 4).astype(np.int64)
                where = np.cumsum(gaps + 1) - 1
                if where[-1] >= block.size:
                    raise BrokenPolicy("A block of the delta reaches beyond its tensor.")
                block[where] += _joined(raw[4 * count :], width)
            at += size
    except (struct.error, zstandard.ZstdError) as error:
        raise BrokenPolicy(f"The delta cannot be unpacked: {error}.") from error
    if at != len(blob):
        raise BrokenPolicy("The delta of a tensor goes on after its last block.")
    return Tensor(old.dtype, old.shape, result)


def _items(tensor: Tensor) -> NDArray[Any]:
    return tensor.data.view(f"<u{ITEM_BYTES[tensor.dtype]}")


def _planes(values: NDArray[Any]) -> bytes:
    return np.ascontiguousarray(values).view(np.uint8).reshape(-1, values.itemsize).T.tobytes()


def _joined(raw: bytes, width: int) -> NDArray[Any]:
    planes = np.frombuffer(raw, np.uint8).reshape(width, -1)
    return np.ascontiguousarray(planes.T).view(f"<u{width}").reshape(-1)
