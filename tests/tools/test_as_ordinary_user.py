"""The sandbox and the tools again, as a user who is not root: another mode of the same code.

Only where pytest itself is root. The interpreter, the packages and the sources may lie where no other user
can go, so they are mounted elsewhere in a mount namespace of the run's own.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tools.ripgrep import binary

UID = 61234
REPOSITORY = Path(__file__).parents[2]

SCRIPT = r"""
set -e
mount --make-rprivate /
for pair in "$@"; do mount --bind "${pair%%=*}" "${pair#*=}"; done
exec setpriv --reuid UID --regid UID --clear-groups --inh-caps=-all \
  env -i HOME="$STAGE/home" PATH="$STAGE/python/bin:/usr/local/bin:/usr/bin:/bin:$STAGE/programs" \
  TMPDIR="$STAGE/tmp" LD_LIBRARY_PATH="$STAGE/python/lib" PYTHONPATH="$STAGE/packages" \
  PYTHONDONTWRITEBYTECODE=1 HYPOTHESIS_STORAGE_DIRECTORY="$STAGE/tmp/hypothesis" LANG=C.UTF-8 \
  "$STAGE/python/bin/PYTHON" -P -m pytest -q -p no:cacheprovider --rootdir "$STAGE/repository" \
  -c "$STAGE/repository/pyproject.toml" --confcutdir "$STAGE/repository" TESTS
"""


@pytest.mark.skipif(os.getuid() != 0, reason="pytest itself runs as an ordinary user already")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "tests",
    [
        "tests/tools/sandbox/test_*.py",
        "tests/tools/sandbox/escapes",
        "tests/tools/test_forks.py",
        "tests/tools/test_shell.py",
        "tests/tools/test_shell_session.py",
        "tests/tools/test_files.py",
        "tests/tools/test_edit.py",
        "tests/tools/test_read.py",
        "tests/tools/test_{write,delete,move,transaction,notebook}.py",
        "tests/tools/test_apply_patch{,_scenarios}.py",
        "tests/tools/test_{listing,glob}.py -m 'not budget'",
        "tests/tools/snapshots/test_{take,restore}.py",
        "tests/tools/index -m 'not budget'",
        "tests/tools/test_{symbols,search,grep}.py -m 'not budget'",
    ],
)
def test_everything_holds_for_an_ordinary_user(tests: str) -> None:
    for needed in ("unshare", "setpriv"):
        if shutil.which(needed) is None:
            pytest.skip(f"{needed} (util-linux) is not installed")
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("this machine's root may not make a mount namespace")
    stage = Path(tempfile.mkdtemp(prefix="etude-user-", dir="/tmp"))
    stage.chmod(0o755)
    interpreter = Path(os.path.realpath(sys.executable))
    mounts = {
        interpreter.parent.parent: stage / "python",
        Path(pytest.__file__).parent.parent: stage / "packages",
        REPOSITORY: stage / "repository",
        binary().parent: stage / "programs",
    }
    for place in (*mounts.values(), stage / "home", stage / "tmp"):
        place.mkdir()
    for name in ("home", "tmp"):
        os.chown(stage / name, UID, UID)
    try:
        script = SCRIPT.replace("UID", str(UID)).replace('PYTHON"', f'{interpreter.name}"')
        script = script.replace("TESTS", f"$STAGE/repository/{tests}")
        pairs = [f"{source}={target}" for source, target in mounts.items()]
        ran = subprocess.run(
            ["unshare", "-m", "bash", "-c", script, "bash", *pairs],
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "STAGE": str(stage)},
            cwd="/",
            capture_output=True,
            text=True,
        )
        sys.stdout.write(ran.stdout[-600:])
        assert ran.returncode == 0, (ran.stdout + ran.stderr)[-6000:]
        assert re.search(r"\b[1-9]\d+ passed", ran.stdout), ran.stdout[-2000:]
    finally:
        for name in ("home", "tmp"):
            shutil.rmtree(stage / name, ignore_errors=True)
        for name in ("python", "packages", "repository", "programs"):
            (stage / name).rmdir()  # never what is mounted there
        stage.rmdir()
