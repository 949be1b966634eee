"""Attempts on the programs, statuses and mounts that are ours, through the shell as a model uses it."""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.hands import Hands
from tools.sandbox import SandboxPolicy
from tools.workspace import Workspace

GIT = shutil.which("git") or "git"
TIERS = ("bubblewrap", "landlock")
EVIL = "#!/bin/sh\necho HIJACKED\n"
HIJACKS = {
    "a program of its name in the workspace": ":",
    "another PATH": "export PATH=$PWD:$PATH",
    "a function": """git() { echo HIJACKED; }; export -f git
python3() { echo HIJACKED; }; export -f python3""",
    "an alias": """shopt -s expand_aliases
alias git='echo HIJACKED' python3='echo HIJACKED' rg='echo HIJACKED'""",
    "a hashed place": "hash -p $PWD/git git; hash -p $PWD/python3 python3",
    "a file that shells read": """echo 'echo HIJACKED' > ~/.bashrc; cp ~/.bashrc ~/.profile
export BASH_ENV=~/.bashrc ENV=~/.bashrc""",
    "a library": """cp /bin/true evil.so
export LD_PRELOAD=$PWD/evil.so LD_LIBRARY_PATH=$PWD""",
    "a configuration of git": r"""printf '[core]\nfsmonitor=%s\npager=%s\n' $PWD/git $PWD/git > ~/.gitconfig
printf '[alias]\nstatus=!echo HIJACKED\n[include]\npath=%s/more\n' $PWD >> ~/.gitconfig
printf '[core]\nfsmonitor=%s\n' $PWD/git > more
export GIT_CONFIG_GLOBAL=$PWD/more GIT_EXEC_PATH=$PWD GIT_DIR=$PWD/none""",
    "a module of Python's": """echo 'print("HIJACKED")' > sitecustomize.py
cp sitecustomize.py usercustomize.py; cp sitecustomize.py os.py
export PYTHONPATH=$PWD PYTHONSTARTUP=$PWD/os.py PYTHONHOME=$PWD""",
    "a path file of Python's": """d=~/.local/lib/python3.11/site-packages; mkdir -p $d
echo 'import os; print("HIJACKED")' > $d/evil.pth""",
}


@pytest.fixture(params=TIERS)
async def hands(
    request: pytest.FixtureRequest, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Hands]:
    """A shell in a repository, in front of whose PATH lies the workspace itself."""
    root = open_folder / "home" / "project"
    root.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", root], check=True)
    for name in ("git", "rg", "python3", "bash", "setsid", "env", "sh"):
        (root / name).write_text(EVIL)
        (root / name).chmod(0o755)
    if os.getuid() == 0:
        for path in (root, *root.rglob("*")):
            os.chown(path, 61001, 61001)
    monkeypatch.setenv("HOME", str(root.parent))
    monkeypatch.setenv("PATH", f"{root}:{os.environ['PATH']}")
    workspace = Workspace(root, SandboxPolicy(tier=request.param))
    yield Hands(workspace)
    await workspace.close()


@pytest.mark.parametrize("hijack", HIJACKS.values(), ids=HIJACKS)
async def test_our_own_programs_are_not_replaced(hands: Hands, hijack: str) -> None:
    await hands(hijack)
    sandbox = await hands.session.sandbox()
    status = await sandbox.run(["git", "-c", "core.fsmonitor=false", "status", "--porcelain"], timeout_s=20)
    assert status.exit_code == 0, status.stderr
    assert b"?? git" in status.stdout
    version = await sandbox.run(["git", "--version"])
    assert version.stdout.startswith(b"git version")
    python = await sandbox.run(["python3", "-I", "-c", "print('true')"])
    assert (python.exit_code, python.stdout) == (0, b"true\n"), python.stderr
    for ran in (status, version, python):
        assert b"HIJACKED" not in ran.stdout + ran.stderr
    assert (await hands("echo still here")).data["exit_code"] == 0


SPOOFS = {
    "to every descriptor": r"""for f in /proc/[0-9]*/fd/*; do
    for word in exit ready 1 2 3; do printf '\0%s\0000\0/\0' $word > $f; done
done""",
    "to the status pipe of its parent": r"""printf '\0exit\0000\0\0' > /proc/$PPID/fd/4
printf '1\0000\0/\0\n' > /proc/2/fd/4
printf '\0ready\0000\0\0' > /proc/1/fd/4""",
    "without end": """head -c 300000 /dev/zero > /proc/$PPID/fd/4
head -c 300000 /dev/urandom > /proc/$PPID/fd/4""",
}


@pytest.mark.parametrize("spoof", SPOOFS.values(), ids=SPOOFS)
async def test_a_status_is_not_believed(hands: Hands, spoof: str) -> None:
    for _ in range(2):  # the first command of a shell, and a later one
        result = await hands(f"({spoof}) 2>/dev/null </dev/null & wait; (exit 7)", timeout_s=20)
        assert result.data["exit_code"] == 7
    assert (await hands("echo next")).text.startswith("next")
    assert (await (await hands.session.sandbox()).run(["sh", "-c", "exit 5"])).exit_code == 5


async def test_the_tier_is_in_every_result(hands: Hands) -> None:
    tier = hands.workspace.policy.tier
    assert (await hands("true")).data["tier"] == tier
    assert (await hands("sleep 9", timeout_s=0.2)).data["tier"] == tier
    assert (await hands("sleep 9", background=True)).data["tier"] == tier
    assert (await hands.session.sandbox()).tier == tier


async def test_protection_is_back_after_a_change_on_the_host(hands: Hands) -> None:
    """`git config` renames a new file over the old one, and the mount goes with that."""
    if hands.workspace.policy.tier == "landlock":
        pytest.skip("that tier does not hold what lies in .git")
    assert (await hands("echo x >> .git/config")).data["exit_code"] != 0
    git = [GIT, "-c", "safe.directory=*", "-C", str(hands.root)]
    for round_ in range(3):
        subprocess.run([*git, "config", "user.name", f"name{round_}"], check=True)
        held = (hands.root / ".git" / "config").read_text()
        assert f"name{round_}" in held
        if round_ == 1:  # a program of ours first, not the shell
            ran = await (await hands.session.sandbox()).run(["sh", "-c", "echo x >> .git/config"])
            assert ran.exit_code != 0
        script = "echo x >> .git/config; echo x > c; mv -f c .git/config; cp c .git/hooks/pre-commit"
        assert (await hands(script)).data["exit_code"] != 0
        assert (hands.root / ".git" / "config").read_text() == held
        assert not (hands.root / ".git" / "hooks" / "pre-commit").exists()


async def test_many_see_a_lost_mount_at_once(hands: Hands) -> None:
    await hands("true")
    sandbox = await hands.session.sandbox()
    git = [GIT, "-c", "safe.directory=*", "-C", str(hands.root)]
    subprocess.run([*git, "config", "user.name", "another"], check=True)
    runs = await asyncio.gather(*(sandbox.run(["sh", "-c", "cat .git/config >&2; exit 3"]) for _ in range(6)))
    assert {ran.exit_code for ran in runs} == {3}
    assert [b"another" in ran.stderr for ran in runs] == [True] * 6, runs


async def test_what_is_planted_where_no_mount_guards_is_told(hands: Hands) -> None:
    if hands.workspace.policy.tier == "bubblewrap":
        pytest.skip("there the file cannot be written at all")
    result = await hands("printf '[core]\\nfsmonitor=evil\\n' >> .git/config")
    told = json.dumps(result.data["notices"])
    for _ in range(20):
        if "fsmonitor" in told:
            break
        told += json.dumps((await hands("sleep 0.1")).data["notices"])
    assert "fsmonitor" in told
