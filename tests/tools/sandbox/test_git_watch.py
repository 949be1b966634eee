"""What commands plant in repositories that no mount guards is told, and what is harmless is not."""

import asyncio
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Literal

import pytest

from tests.tools.sandbox.test_git_guard import git
from tools.sandbox import SandboxPolicy, SandboxUnavailable
from tools.sandbox.git_programs import in_attributes, in_configuration
from tools.sandbox.git_watch import GitWatch
from tools.shell_session import ShellSession
from tools.workspace import Workspace


@pytest.mark.parametrize(
    "text",
    [
        "[core]\n fsmonitor = /bin/evil",
        "[core]fsmonitor=/bin/evil",
        "[CORE]\n\tFsMonitor = /bin/evil ; comment",
        "[core]\n\tfsmonitor = \\\n /bin/evil",
        '[core]\n\tfsmonitor = "/bin/evil"',
        "[core] hooksPath = x",
        "[core]\n sshCommand = x",
        "[core]\n pager = x",
        "[pager]\n log = x",
        "[core]\n editor = x",
        "[sequence]\n editor = x",
        "[core]\n askPass = x",
        "[core]\n gitProxy = x",
        "[core]\n alternateRefsCommand = x",
        '[filter "any thing"]\n clean = x',
        "[filter.x]\n process = x",
        '[filter "x"]\n smudge = x',
        '[diff "x"]\n textconv = x',
        '[diff "x"]\n command = x',
        "[diff]\n external = x",
        '[merge "x"]\n driver = x',
        '[mergetool "x"]\n cmd = x',
        '[difftool "x"]\n path = x',
        "[alias]\n st = !sh -c x",
        "[credential]\n helper = x",
        '[credential "https://host"]\n helper = x',
        "[include]\n path = ../x",
        '[includeIf "gitdir:/"]\n path = x',
        "[gpg]\n program = x",
        '[gpg "ssh"]\n program = x',
        '[url "https://evil/"]\n insteadOf = https://github.com/',
        '[remote "origin"]\n uploadpack = x',
        '[remote "origin"]\n url = ext::sh -c x',
        '[remote "origin"]\n vcs = x',
        "[uploadpack]\n packObjectsHook = x",
        '[submodule "x"]\n update = !x',
        "[protocol]\n allow = always",
        '[trailer "x"]\n command = x',
        "[interactive]\n diffFilter = x",
        '[browser "x"]\n cmd = x',
        "\ufeff[core]\n\tpager = x",
        "[core]\r\n\tpager = x\r\n",
    ],
)
def test_settings_that_make_git_run_something(text: str, tmp_path: Path) -> None:
    found = in_configuration(text.encode())
    assert len(found) == 1, found
    config = tmp_path / "config"
    config.write_bytes(text.encode())
    listed = subprocess.run(
        ["git", "config", "-f", config, "--list"], capture_output=True, text=True, check=True
    )
    name = listed.stdout.partition("=")[0]
    assert found[0].partition(" = ")[0].lower() == name.lower(), "git reads the same setting there"


@pytest.mark.parametrize(
    "text",
    [
        "[core]\n repositoryformatversion = 0\n filemode = true\n bare = false\n logallrefupdates = true",
        '[remote "origin"]\n url = https://github.com/a/b\n fetch = +refs/heads/*:refs/remotes/origin/*',
        '[branch "main"]\n remote = origin\n merge = refs/heads/main',
        "[core]\n fsmonitor = true",
        "[pager]\n log = false",
        "[alias]\n st = status",
        "# [core] fsmonitor = x",
        "[user]\n name = a\n email = b",
        '[submodule "x"]\n url = ../y\n active = true\n update = checkout',
        "fsmonitor = x",
        "",
    ],
)
def test_settings_that_do_not(text: str) -> None:
    assert in_configuration(text.encode()) == []


def test_attributes_that_attach_drivers() -> None:
    assert in_attributes(b"* filter=x\n*.c diff=cpp text\n*.p merge=union") == [
        "info/attributes attaches filter=x",
        "info/attributes attaches diff=cpp",
    ]


SOMETHING = "git init -q REPO; git -C REPO config core.fsmonitor /bin/evil"


@pytest.mark.case("agent-24")
@pytest.mark.parametrize(
    ("command", "repository", "says"),
    [
        (SOMETHING.replace("REPO", "new"), "new/.git", "core.fsmonitor = /bin/evil"),
        (SOMETHING.replace("REPO", "a/b/c/d/e/f/g/h/i"), "a/b/c/d/e/f/g/h/i/.git", "core.fsmonitor"),
        (SOMETHING.replace("REPO", "node_modules/x"), "node_modules/x/.git", "core.fsmonitor"),
        ("git init -q --bare bare; echo '[core] pager = evil' >> bare/config", "bare", "core.pager = evil"),
        ("git init -q new; echo x > new/.git/hooks/pre-commit", "new/.git", "hooks/pre-commit"),
        (
            "git init -q new; echo ../../evil > new/.git/commondir",
            "new/.git",
            "commondir leads to '../../evil'",
        ),
        ("git init -q new; echo '* filter=x' > new/.git/info/attributes", "new/.git", "attaches filter=x"),
        (
            "git init -q new; echo '[core]hooksPath=x' > new/.git/config.worktree",
            "new/.git",
            "core.hookspath",
        ),
        (
            "mkdir w; git init -q --separate-git-dir=elsewhere w; echo '[core]editor=x' >> elsewhere/config",
            "elsewhere",
            "core.editor = x",
        ),
        (
            "git init -q real; echo '[core]editor=x' >> real/.git/config; mkdir l; ln -s ../real/.git l/.git",
            "real/.git",
            "core.editor = x",
        ),
        (
            "mkdir n; git init -q n/t; mv n/t n/moved; echo '[core]editor=x' >> n/moved/.git/config",
            "n/moved",
            "core.ed",
        ),
        (
            "mkdir -p .git/modules/m; cp -r .git/HEAD .git/refs .git/objects .git/modules/m; "
            "echo '[core]editor=x' > .git/modules/m/config",
            ".git",
            "core.editor = x (in modules/m)",
        ),
        (
            "git worktree add -q linked; echo '/tmp/evil' > .git/worktrees/linked/commondir",
            ".git",
            "commondir leads to '/tmp/evil' (in worktrees/linked)",
        ),
        (
            "mkdir h; cd h; echo 'ref: x' > HEAD; echo ../evil > commondir",
            "h",
            "commondir leads to '../evil'",
        ),
    ],
)
async def test_what_a_command_plants_is_told_with_its_result(
    root: Path, home: Path, command: str, repository: str, says: str
) -> None:
    git(root, "init", "-q")
    git(root, "commit", "-q", "--allow-empty", "-m", "first")
    workspace = Workspace(root, SandboxPolicy(tier="bubblewrap"))
    try:
        shell = await ShellSession.start(workspace)
        await told(shell, "true")
        notices = await told(shell, command, says)
        assert len(notices) == 1, notices
        assert notices[0].startswith(f"The git repository {repository}")
        assert says in notices[0]
        assert str(root) in notices[0]
        assert await told(shell, "true") == [], "told once"
    finally:
        await workspace.close()


async def told(shell: ShellSession, command: str, *expected: str) -> list[str]:
    """Notices of a command and, on a busy machine, of those after it, until what is expected was said."""
    notices = list((await shell.run(command)).notices)
    for _ in range(50):
        await asyncio.sleep(0.2)
        notices += (await shell.run("true")).notices
        if all(any(words in notice for notice in notices) for words in expected):
            break
    return [notice.encode("utf-8", "backslashreplace").decode() for notice in notices]


async def test_ordinary_work_with_repositories_is_not_told(root: Path, home: Path, tmp_path: Path) -> None:
    git(root, "init", "-q")
    git(root, "commit", "-q", "--allow-empty", "-m", "first")
    workspace = Workspace(root, SandboxPolicy(tier="bubblewrap"))
    try:
        shell = await ShellSession.start(workspace)
        for command in (
            "git init -q lib && cd lib && touch f && git add f && git commit -qm x && cd ..",
            "git clone -q lib copy && git -C copy checkout -q -b other && git -C copy log --oneline",
            "git worktree add -q side && touch side/f",
            "git -c protocol.file.allow=always clone -q --bare lib bare.git",
            "git commit -q --allow-empty -m second; git gc -q; git stash list",
        ):
            assert await told(shell, command) == [], command
    finally:
        await workspace.close()


@pytest.mark.parametrize("tier", ["landlock", "none"])
async def test_where_nothing_can_be_mounted_the_workspaces_own_repository_is_looked_at(
    root: Path, home: Path, tier: Literal["landlock", "none"]
) -> None:
    git(root, "init", "-q")
    workspace = Workspace(root, SandboxPolicy(tier=tier))
    try:
        shell = await ShellSession.start(workspace)
    except SandboxUnavailable as error:
        pytest.skip(error.message)
    else:
        await told(shell, "true")
        notices = await told(shell, "git config core.fsmonitor /bin/evil", "core.fsmonitor")
        assert "core.fsmonitor = /bin/evil" in notices[0]
    finally:
        await workspace.close()


async def test_what_was_there_before_is_not_told_until_it_changes(root: Path, home: Path) -> None:
    deep = root / "a/b/c/d/e/f/g/deep"
    git(root, "init", "-q", str(deep))
    git(deep, "config", "core.pager", "less -R")
    for path in (deep / ".git" / "config", deep / ".git"):
        os.utime(path)
    await asyncio.sleep(0.1)
    workspace = Workspace(root, SandboxPolicy(tier="bubblewrap"))
    try:
        shell = await ShellSession.start(workspace)
        assert await told(shell, "ls a/b") == []
        notices = await told(shell, "git -C a/b/c/d/e/f/g/deep config core.editor evil", "core.editor")
        assert len(notices) == 1
        assert "core.editor = evil" in notices[0]
    finally:
        await workspace.close()


async def test_hostile_trees_are_looked_at_without_harm(root: Path, home: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    git(tmp_path, "init", "-q", str(outside))
    git(outside, "config", "core.pager", "secret-of-outside")
    workspace = Workspace(root, SandboxPolicy(tier="bubblewrap"))
    try:
        shell = await ShellSession.start(workspace)
        script = f"""
        mkdir p; mkfifo p/.git; mkdir q; ln -s {outside}/.git q/.git
        mkdir r; echo 'gitdir: {outside}/.git' > r/.git
        mkdir s; ln -s .git s/.git; mkdir -p t/.git; mkfifo t/.git/config
        mkfifo t/.git/commondir; ln -s / u
        mkdir -p v/.git/hooks; head -c 5000000 /dev/zero > v/.git/config; mkdir $'\\xff'
        git init -q $'\\xff/x'
        echo '[core]pager=x' >> $'\\xff/x/.git/config'; mkdir w; echo 'gitdir: ../w' > w/.git; chmod 0 v"""
        notices = await told(shell, script, "core.pager = x", "t/.git was")
        text = "\n".join(notices)
        assert "secret-of-outside" not in text
        assert "core.pager = x" in text
        assert "t/.git was" in text
    finally:
        await workspace.close()
        (root / "v").chmod(0o755)


@pytest.mark.budget
def test_a_look_costs_next_to_nothing_when_nothing_changed(tmp_path: Path) -> None:
    for number in range(3200):
        folder = tmp_path / f"d{number % 80}" / f"e{number}"
        folder.mkdir(parents=True)
        for name in ("a", "b"):
            (folder / name).touch()
    git(tmp_path, "init", "-q", "nested")
    watch = GitWatch(tmp_path)
    try:
        begun = time.process_time()
        watch.begin()
        first = time.process_time() - begun
        spent: list[float] = []
        for _ in range(50):
            begun = time.process_time()
            assert watch.look() == []
            spent.append(time.process_time() - begun)
        print(f"begin {first * 1000:.0f} ms, look {min(spent) * 1000:.2f} ms")
        assert min(spent) < 0.005
        assert first < 2
        shutil.copytree(tmp_path / "nested", tmp_path / "d7" / "copied")
        with open(tmp_path / "d7" / "copied" / ".git" / "config", "a") as file:
            file.write("[core]\npager = x\n")
        assert "d7/copied/.git" in watch.look()[0]
    finally:
        watch.close()
    assert watch.look() == []


def test_without_the_kernels_help_everything_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = GitWatch(tmp_path)
    os.close(watch._inotify)
    watch._inotify = -1  # as where the account has no instance left
    try:
        watch.begin()
        git(tmp_path, "init", "-q", "a/b")
        git(tmp_path / "a" / "b", "config", "core.editor", "x")
        assert "core.editor = x" in watch.look()[0]
    finally:
        watch.close()
