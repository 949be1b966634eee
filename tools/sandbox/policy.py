"""What a sandbox must allow and forbid; how it does so is the tier's business."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Tier = Literal["bubblewrap", "none"]


@dataclass(frozen=True, slots=True)
class SandboxPolicy:
    """The confinement of one workspace.

    `tier` is `auto` (the strongest that works here) or a demanded one; a demanded tier that does not
    work is an error, never a silent fallback. `none` must be asked for by name.
    """

    tier: Literal["auto", "bubblewrap", "none"] = "auto"
    network: bool = False
    read: tuple[Path, ...] = ()
    memory_mb: int = 4096
    pids: int = 512
    environment: dict[str, str] = field(default_factory=dict)
