"""Bounds the memory of a sandbox where no control group does: it looks, and ends the largest process."""

import asyncio
import signal
from collections.abc import Callable
from typing import Final, Protocol

from tools.sandbox import processes

_EVERY_S: Final = 1.0


class Watched(Protocol):
    """What it needs of a sandbox."""

    init: int

    @property
    def alive(self) -> bool: ...

    def own(self) -> set[int]: ...


async def watch(sandbox: Watched, limit: int, tell: Callable[[str], None]) -> None:
    """Until the sandbox ends. Over `limit` bytes (resident, together) twice in a row, the largest process
    that is not ours is killed; a foreground command was ended by whoever waits for it before that.

    What grows within a second can pass any limit: this is a bound for accidents, not for attacks.
    """
    over = False
    while sandbox.alive:
        await asyncio.sleep(_EVERY_S)
        found, ours = processes.descendants(sandbox.init), sandbox.own()
        sizes = {pid: processes.resident_bytes(pid) for pid in found}
        before, over = over, sum(sizes.values()) > limit
        largest = max((pid for pid in sizes if pid not in ours), key=sizes.__getitem__, default=None)
        if over and before and largest is not None:
            name = processes.command_line(largest)
            processes.send((largest,), signal.SIGKILL)
            tell(f"A process was killed: the commands together used more than {limit >> 20} MB ({name}).")
