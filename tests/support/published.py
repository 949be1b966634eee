"""The published source of a real package, as a workspace for tests."""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from platformdirs import user_cache_path


def published_source(name: str, version: str, target: Path) -> Path:
    """Unpack the source distribution of a package into `target`; downloaded once per machine."""
    cache = Path(os.environ.get("ETUDE_CACHE") or user_cache_path("etude")) / "tests" / "sdist"
    archive = cache / f"{name}-{version}.tar.gz"
    if not archive.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            # Build isolation off: the back end is a test dependency, so nothing more is downloaded.
            download = ["download", "-q", "--no-deps", "--no-binary", ":all:", "--no-build-isolation"]
            command = [sys.executable, "-m", "pip", *download, "-d", folder, f"{name}=={version}"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"could not download {name} {version}: {done.stderr[-800:]}")
            os.replace(Path(folder) / archive.name, archive)
    with tarfile.open(archive) as tar:
        tar.extractall(target, filter="data")
    unpacked = target / f"{name}-{version}"
    final = target / name
    shutil.move(unpacked, final)
    return final
