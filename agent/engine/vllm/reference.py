"""What new weights must give: a forward pass of our own, to hold a server's answers against."""

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.engine.protocol import EngineError


def layout(folder: Path) -> dict[str, Any]:
    """Shape of each tensor of a folder, by name.

    Raises:
        EngineError: there are none, or a file is broken.
    """
    found: dict[str, Any] = {}
    try:
        for path in sorted(folder.glob("*.safetensors")):
            with path.open("rb") as file:
                size = struct.unpack("<Q", file.read(8))[0]
                if size > 100 << 20:
                    raise EngineError(f"{path} is not a safetensors file.")
                head = json.loads(file.read(size))
            if path.stat().st_size != 8 + size + max(
                one["data_offsets"][1] for name, one in head.items() if name != "__metadata__"
            ):
                raise EngineError(f"{path} is cut off.")
            found |= {name: one["shape"] for name, one in head.items() if name != "__metadata__"}
    except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
        raise EngineError(f"{folder} cannot be loaded: {error}") from error
    if not found:
        raise EngineError(f"{folder} holds no safetensors files.")
    return found


def reference(folder: Path, ids: Sequence[int], most: int) -> list[float] | None:
    """The log-prob of each id but the first, at temperature 1, in fp32; None for weights over `most` bytes.

    Blocks while the weights are read.
    """
    if sum(path.stat().st_size for path in folder.glob("*.safetensors")) > most:
        return None
    import torch
    from transformers import AutoModelForCausalLM

    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, local_files_only=True
        ).eval()
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise EngineError(f"{folder} cannot be loaded: {error}") from error
    given = torch.tensor([list(ids)])
    with torch.inference_mode():
        steps = model(given).logits[0, :-1].float().log_softmax(-1)
    return steps.gather(1, given[0, 1:, None])[:, 0].tolist()


def differs(expected: Sequence[float], got: Sequence[float], dtype: str) -> bool:
    """Whether two computations of the same weights would not differ so much."""
    most = 1e-3 if dtype == "float32" else 0.25
    return any(abs(one - other) > most for one, other in zip(expected, got, strict=True))
