"""What a long run showed, kept as a file: the command, the seed, the commit, the figures."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def keep(name: str, seed: int, **figures: Any) -> None:
    """Write `NAME.json` into the folder that `ETUDE_RESULTS` names; nothing where it is not set."""
    folder = os.environ.get("ETUDE_RESULTS")
    if not folder:
        return
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
    record = {
        "command": " ".join([*_settings(), "pytest", *sys.argv[1:]]),
        "commit": commit,
        "seed": seed,
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **figures,
    }
    place = ROOT / folder
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{name}.json").write_text(json.dumps(record, indent=2) + "\n")


def _settings() -> list[str]:
    """The variables that shape the long tests, as they were set."""
    return sorted(f"{key}={value}" for key, value in os.environ.items() if key.startswith("ETUDE_TEST_"))
