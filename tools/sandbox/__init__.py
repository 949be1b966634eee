"""Confinement of commands: `probe` says what works here, `start` makes one sandbox for one workspace."""

import os
from pathlib import Path

from tools.sandbox import landlock
from tools.sandbox.policy import SandboxDied, SandboxPolicy, SandboxUnavailable, Tier
from tools.sandbox.probe import TIERS, SandboxReport, probe, probed
from tools.sandbox.sandbox import Ran, Sandbox

__all__ = [
    "TIERS",
    "Ran",
    "Sandbox",
    "SandboxDied",
    "SandboxPolicy",
    "SandboxReport",
    "SandboxUnavailable",
    "Tier",
    "probe",
    "probed",
    "start",
]


async def start(policy: SandboxPolicy, root: Path) -> Sandbox:
    """Start a sandbox for the workspace at `root` (absolute, resolved). Call it on the event loop's thread.

    With `auto` the strongest tier that works here is used; if none does, commands of an ordinary user's
    server run unconfined, and `confined` and `notices` say so. Those of a root server never do unasked.

    Raises:
        SandboxUnavailable: the demanded tier does not work here; the message says what to do.
    """
    if policy.tier != "auto":
        return await _open(policy, policy.tier, root)
    report = await probed()
    why = report.why_not
    for tier in TIERS[TIERS.index(report.tier) : -1]:
        try:
            sandbox = await _open(policy, tier, root)
        except SandboxUnavailable as error:  # the machine can, but not for this workspace
            why = f"{why} {error.message}".strip()
            continue
        if why:
            sandbox.notices.insert(0, f"Commands run in the weaker tier {tier}: {why}")
        return sandbox
    if os.geteuid() == 0:
        raise SandboxUnavailable(
            f"{why} A server that runs as root does not run commands unconfined by itself. Start it as an "
            'ordinary user, or accept that commands run as root with `tier = "none"` under [sandbox].'
        )
    sandbox = await Sandbox.open(policy, "none", root)
    sandbox.notices.insert(0, f"Commands are NOT confined: {why}")
    return sandbox


async def _open(policy: SandboxPolicy, tier: Tier, root: Path) -> Sandbox:
    sandbox = await Sandbox.open(policy, tier, root)
    if tier == "landlock":
        sandbox.notices.append(f"Commands are confined by Landlock: {'; '.join(landlock.limitations())}.")
    return sandbox
