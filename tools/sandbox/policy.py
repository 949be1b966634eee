"""What a sandbox must allow and forbid; how it does so is the tier's business."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tools.errors import EnvironmentFault

Tier = Literal["bubblewrap", "landlock", "none"]


class SandboxUnavailable(EnvironmentFault):
    """The demanded confinement does not work here; the message says why and what to do."""


class SandboxDied(EnvironmentFault):
    """The sandbox ended while something ran in it. The next command starts a new one."""


@dataclass(frozen=True, slots=True)
class View:
    """A workspace that commands see at another path (`at`) than the server has it.

    `holder` is the process whose mounts hold it, where it is no plain folder: the server's path of it then
    begins with `/proc/HOLDER/root`.
    """

    at: Path
    holder: int | None = None

    def held(self, path: Path) -> Path:
        """The path among the mounts that hold it."""
        prefix = f"/proc/{self.holder}/root"
        return Path(str(path).removeprefix(prefix)) if self.holder is not None else path


@dataclass(frozen=True, slots=True)
class SandboxPolicy:
    """The confinement of one workspace.

    `tier` is `auto` (the strongest that works here) or a demanded one; a demanded tier that does not
    work is an error, never a silent fallback. Where nothing works, `auto` runs an ordinary user's
    commands unconfined and says so in every result (`confined` is False), so that the mode can ask before
    each of them; for a root server that has to be demanded (`none`).
    `network` is False (a loopback of its own), True (the machine's, as it is) or a list of hosts as
    `tools.sandbox.network` reads them, which a proxy holds commands to in the bubblewrap tier.
    `read` adds read-only paths, `memory_mb` and `pids` bound all commands of the workspace together.
    """

    tier: Literal["auto", "bubblewrap", "landlock", "none"] = "auto"
    network: bool | tuple[str, ...] = False
    read: tuple[Path, ...] = ()
    memory_mb: int = 4096
    pids: int = 512
    environment: dict[str, str] = field(default_factory=dict)
    view: View | None = None

    def seen(self, path: Path, root: Path) -> Path:
        """Where commands see a path of the workspace at `root`."""
        return path if self.view is None else self.view.at / path.relative_to(root)

    @property
    def whole_network(self) -> bool:
        """Whether commands share the network of the machine."""
        return self.network is True

    @property
    def hosts(self) -> tuple[str, ...]:
        """The rules, where the network is a list of hosts."""
        return self.network if isinstance(self.network, tuple) else ()

    def tmpfs_bytes(self) -> dict[str, int]:
        """Sizes of the memory-backed folders: together under half the memory limit, else filling
        one of them would kill the sandbox instead of failing the write."""
        share = self.memory_mb * 1024 * 1024 // 16
        return {"/tmp": 4 * share, "home": 2 * share, "/dev/shm": share}
