"""Memory and process limits by control groups, where this account may make them (version 1 or 2).

A machine may have the controllers in version 1 and a bare version 2 beside them: that one then serves to end
all processes of a sandbox at once.
"""

import itertools
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_counter: Final = itertools.count(1)
_ROOT: Final = Path("/sys/fs/cgroup")


@dataclass(slots=True)
class ControlGroup:
    """The groups of one sandbox: one folder per controller in version 1, one in all in version 2."""

    folders: tuple[Path, ...]
    kinds: tuple[str, ...]
    """Which limits hold: some of `memory`, `pids`."""

    def add(self, pid: int) -> None:
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def kill(self) -> bool:
        """End every process in it at once, also those that fork meanwhile; False where the kernel cannot."""
        done = False
        for folder in self.folders:
            try:
                (folder / "cgroup.kill").write_text("1")
            except OSError:  # version 1, or a kernel before 5.14
                continue
            done = True
        return done

    def out_of_memory(self) -> int:
        """How often a process was killed for memory."""
        for folder in self.folders:
            for name in ("memory.events", "memory.oom_control"):
                try:
                    text = (folder / name).read_text()
                except OSError:
                    continue
                for line in text.splitlines():
                    if line.startswith("oom_kill "):
                        return int(line.split()[1])
        return 0

    def remove(self) -> bool:
        """Take the empty groups away; False while a process is still dying in one."""
        for folder in self.folders:
            try:
                folder.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                return False
        return True


def create(memory_mb: int, pids: int) -> ControlGroup | None:
    """Groups with these limits, or None where this account may not make any."""
    name = f"etude-{os.getpid()}-{next(_counter)}"
    own = _own_groups()
    limit = memory_mb * 1024 * 1024
    folders: list[Path] = []
    kinds: list[str] = []
    for controller, settings in (
        ("memory", {"memory.limit_in_bytes": limit}),
        ("pids", {"pids.max": pids}),
    ):
        if controller in own:
            folder = _make(_ROOT / controller / own[controller].lstrip("/"), name, settings)
            if folder is not None:
                folders.append(folder)
                kinds.append(controller)
    if folders:
        bare = _make(_ROOT / "unified" / own.get("", "/").lstrip("/"), name, {})
        folders += [bare] if bare is not None else []
        return ControlGroup(tuple(folders), tuple(kinds))
    for parent in dict.fromkeys((_ROOT / own.get("", "/").lstrip("/"), _ROOT)):
        if _delegated(parent):
            folder = _make(parent, name, {"memory.max": limit, "pids.max": pids, "memory.swap.max": 0})
            if folder is not None:
                return ControlGroup((folder,), ("memory", "pids"))
    return None


def sweep() -> None:
    """Remove the groups of servers that were killed."""
    own = _own_groups()
    parents = {_ROOT / name / own[name].lstrip("/") for name in ("memory", "pids") if name in own}
    parents |= {_ROOT / own.get("", "/").lstrip("/"), _ROOT, _ROOT / "unified" / own.get("", "/").lstrip("/")}
    for parent in parents:
        for folder in parent.glob("etude-*-*"):
            pid = folder.name.split("-")[1]
            if pid.isdigit() and not Path("/proc", pid).exists():
                try:
                    folder.rmdir()
                except OSError:  # something still runs in it, or it is not ours to remove
                    continue


def _own_groups() -> dict[str, str]:
    """Controller → group of this process; the empty name is version 2."""
    groups: dict[str, str] = {}
    try:
        text = Path("/proc/self/cgroup").read_text()
    except OSError:
        return groups
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            groups[controller] = path
    return groups


def _delegated(parent: Path) -> bool:
    """Whether children of this version 2 group get both controllers."""
    control = parent / "cgroup.subtree_control"
    try:
        enabled = control.read_text().split()
        if {"memory", "pids"} <= set(enabled):
            return True
        control.write_text("+memory +pids")
    except OSError:
        return False
    return True


def _make(parent: Path, name: str, settings: dict[str, int]) -> Path | None:
    folder = parent / name
    try:
        folder.mkdir()
    except OSError:
        return None
    for key, value in settings.items():
        try:
            (folder / key).write_text(str(value))
        except OSError:
            if key == "memory.swap.max":  # no swap accounting in this kernel
                continue
            folder.rmdir()
            return None
    return folder


def remove_soon(group: ControlGroup, patience_s: float = 1.0) -> None:
    """Wait for the last process to be gone and remove the group. Blocks: run it in a thread."""
    deadline = time.monotonic() + patience_s
    while not group.remove() and time.monotonic() < deadline:
        time.sleep(0.005)
