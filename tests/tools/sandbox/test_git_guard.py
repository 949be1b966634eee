"""What a command may not change in a repository, because git on the host would execute it."""

import errno
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.tools.sandbox.conftest import Starter
from tools.sandbox import Sandbox, SandboxDied, start
from tools.sandbox.git_guard import guard
from tools.sandbox.policy import SandboxPolicy
from tools.shell import ShellSession
from tools.workspace import Workspace

IDENTITY = ["-c", "user.name=T", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false"]


def git(root: Path, *arguments: str) -> str:
    ran = subprocess.run(
        ["git", "-C", str(root), *IDENTITY, *arguments], capture_output=True, text=True, check=True
    )
    return ran.stdout


@pytest.fixture
def repository(root: Path, home: Path) -> Path:
    git(root, "init", "-q", "-b", "main")
    (root / "file").write_text("one\n")
    git(root, "add", "file")
    git(root, "commit", "-qm", "first")
    return root


async def fails(sandbox: Sandbox, script: str) -> bool:
    return (await sandbox.run(["bash", "-c", script])).exit_code != 0


async def test_git_itself_works(repository: Path, started: Starter) -> None:
    sandbox = await started()
    script = """set -e; echo two > file; git add file; git commit -qm second; git checkout -q -b other
    git stash list; git gc -q; git status --short; git branch -D main -q; git tag t; git fsck --no-progress
    git log --format=%s"""
    ran = await sandbox.run(["bash", "-c", script])
    assert (ran.exit_code, ran.stdout) == (0, b"second\nfirst\n"), ran.stderr
    assert git(repository, "log", "--format=%s%an") == "secondEtude\nfirstT\n"
    assert git(repository, "status", "--short") == ""


@pytest.mark.case("agent-24")
@pytest.mark.parametrize(
    "script",
    [
        "echo x > .git/hooks/pre-commit",
        "mv .git/hooks .git/h && mkdir .git/hooks",
        "mv .git .moved",
        "echo '[core] fsmonitor = evil' >> .git/config",
        "cp .git/config c && mv c .git/config",
        "rm .git/config",
        "git config core.fsmonitor evil",
        "echo ../evil > .git/commondir",
        "rm .git/commondir",
        "rm -rf .git",
        "ln -sf /tmp/evil .git/config",
    ],
)
async def test_what_names_programs_cannot_be_written(repository: Path, started: Starter, script: str) -> None:
    before = (repository / ".git" / "config").read_bytes()
    hooks = sorted(os.listdir(repository / ".git" / "hooks"))
    assert await fails(await started(), script)
    assert (repository / ".git" / "config").read_bytes() == before
    assert sorted(os.listdir(repository / ".git" / "hooks")) == hooks
    assert (repository / ".git" / "commondir").read_bytes() == b".\n"


@pytest.mark.case("agent-24")
async def test_nested_repositories_and_submodules_are_guarded(
    repository: Path, started: Starter, tmp_path: Path
) -> None:
    git(repository, "init", "-q", "vendor/sub")
    other = tmp_path / "other"
    git(tmp_path, "init", "-q", str(other))
    (other / "f").touch()
    git(other, "add", "f")
    git(other, "commit", "-qm", "x")
    git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), "mod")
    sandbox = await started()
    for script in (
        "echo x > vendor/sub/.git/hooks/pre-commit",
        "echo x >> vendor/sub/.git/config",
        "mv vendor/sub/.git vendor/sub/x",
        "echo x > .git/modules/mod/hooks/pre-commit",
        "echo x >> .git/modules/mod/config",
        "echo 'gitdir: ../evil' > mod/.git",
        "rm mod/.git",
    ):
        assert await fails(sandbox, script), script
    assert not await fails(sandbox, "cd vendor/sub && touch g && git add g && git commit -qm nested")
    assert not await fails(sandbox, "cd mod && touch g && git add g && git commit -qm sub")


@pytest.mark.case("agent-24")
async def test_hooks_that_are_a_link_leave_the_repository_read_only(
    repository: Path, started: Starter
) -> None:
    hooks = repository / ".git" / "hooks"
    for path in hooks.iterdir():
        path.unlink()
    hooks.rmdir()
    (repository / "shared").mkdir()
    hooks.symlink_to("../shared")
    sandbox = await started()
    for script in (
        "echo x > .git/hooks/pre-commit",
        "echo x > shared/pre-commit",
        "rm .git/hooks",
        "echo x > .git/x",
    ):
        assert await fails(sandbox, script), script
    assert not await fails(sandbox, "git status && echo x > file")
    assert any("read-only in the sandbox" in notice for notice in sandbox.notices)


@pytest.mark.case("agent-24")
@pytest.mark.parametrize("link", [".git", ".git/hooks", "nested/.git", "nested/.git/hooks"])
async def test_a_link_of_a_repository_exposes_nothing(
    repository: Path, home: Path, started: Starter, link: str
) -> None:
    secret = home / "secret"
    (secret / "modules" / "m").mkdir(parents=True)
    for name in ("config", "modules/m/HEAD", "modules/m/config"):
        (secret / name).write_text("key\n")
    place = repository / link
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_dir():
        place.rename(repository / "moved")
    place.symlink_to(secret)
    before = sorted(secret.rglob("*"))
    sandbox = await started()
    assert await fails(sandbox, f"cat {link}/config")
    assert await fails(sandbox, f"ls {secret}")
    assert not await fails(sandbox, "echo x > new")
    assert any("the sandbox" in notice for notice in sandbox.notices)
    assert sorted(secret.rglob("*")) == before, "nothing is made outside the workspace"


def test_a_pipe_in_place_of_a_configuration_is_not_waited_for(tmp_path: Path) -> None:
    git_folder = tmp_path / ".git"
    (git_folder / "hooks").mkdir(parents=True)
    for name in ("config", "commondir"):
        os.mkfifo(git_folder / name)
    found = guard(tmp_path)
    assert "config (missing), commondir" in found.notices[0]
    found.release()


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
async def test_a_repository_of_someone_else_stays_read_only(repository: Path, started: Starter) -> None:
    (repository / ".git").chmod(0o555)
    try:
        sandbox = await started()
        assert not await fails(sandbox, "git log")
        assert await fails(sandbox, "git commit --allow-empty -m x")
        assert "not writable" in sandbox.notices[0]
    finally:
        (repository / ".git").chmod(0o755)


async def test_the_guards_own_file_goes_with_the_last_session(repository: Path, started: Starter) -> None:
    first, second = await started(), await started()
    common = repository / ".git" / "commondir"
    assert common.read_bytes() == b".\n"
    assert git(repository, "status", "--short") == ""
    assert common.stat().st_uid == repository.stat().st_uid
    await first.close()
    assert common.exists()
    assert await fails(second, "echo ../evil > .git/commondir")
    await second.close()
    assert not common.exists()


async def test_a_rename_on_the_host_does_not_open_the_file(repository: Path) -> None:
    workspace = Workspace(repository, SandboxPolicy(tier="bubblewrap"))
    try:
        session = await ShellSession.start(workspace)
        await session.run("KEPT=state")
        git(repository, "config", "etude.harmless", "1")
        outcome = await session.run("echo evil >> .git/config; echo $KEPT")
        assert "Read-only" in outcome.text
        assert outcome.text.endswith("state\n"), "no restart was needed"
        assert outcome.notices == []
        git(repository, "config", "core.fsmonitor", "/bin/evil")
        outcome = await session.run("echo evil >> .git/config; git status --short")
        assert "Read-only" in outcome.text
        assert "fsmonitor = /bin/evil" in outcome.notices[0]
    finally:
        await workspace.close()
    assert "evil\n" not in (repository / ".git" / "config").read_text().replace("/bin/evil", "")


async def test_a_replaced_repository_ends_the_sandbox(repository: Path, started: Starter) -> None:
    sandbox = await started()
    (repository / ".git").rename(repository / ".old")
    git(repository, "init", "-q")
    with pytest.raises(SandboxDied, match="was replaced"):
        await sandbox.restore_mounts()


async def test_a_pointer_that_leads_elsewhere_is_not_followed(
    root: Path, started: Starter, tmp_path: Path
) -> None:
    git(tmp_path, "init", "-q", str(tmp_path / "main"))
    (root / ".git").write_text(f"gitdir: {tmp_path}/main/.git\n")
    sandbox = await started()
    assert await fails(sandbox, f"ls {tmp_path}/main")
    assert await fails(sandbox, "echo x > .git")


async def told(shell: ShellSession, command: str) -> str:
    return (await shell.run(command)).text


@pytest.mark.case("agent-21")
async def test_a_linked_worktree_works_and_its_repository_is_held(home: Path, tmp_path: Path) -> None:
    main = home / "main"
    git(home, "init", "-q", "-b", "main", "main")
    git(main, "commit", "-q", "--allow-empty", "-m", "first")
    root = tmp_path / "linked"
    git(main, "worktree", "add", "-q", str(root), "-b", "side")
    for path in (root, main):
        _same_owner(path, root)
    workspace = Workspace(root, SandboxPolicy(tier="bubblewrap"))
    before = (main / ".git" / "config").read_bytes()
    try:
        shell = await ShellSession.start(workspace)
        text = await told(
            shell,
            "git status --short --branch; echo x > f; git add f; git commit -qm second; git log --format=%s",
        )
        assert text == "## side\nsecond\nfirst\n"
        for attack in (
            f"echo x >> {main}/.git/config",
            f"echo x > {main}/.git/hooks/pre-commit",
            f"echo /tmp/evil > {main}/.git/worktrees/linked/commondir",
            f"echo /tmp/evil > {main}/.git/worktrees/linked/gitdir",
            "echo 'gitdir: /tmp/evil' > .git",
            "rm .git",
        ):
            outcome = await shell.run(attack)
            assert outcome.exit_code != 0, attack
        await shell.run(f"echo x > {main}/file")  # beside the git folder there is nothing of the user's
        assert os.listdir(main) == [".git"]
    finally:
        await workspace.close()
    assert (main / ".git" / "config").read_bytes() == before
    assert git(root, "log", "--format=%s") == "second\nfirst\n"
    assert git(main, "status", "--short") == ""


@pytest.mark.case("agent-21")
async def test_a_submodule_as_workspace_works(home: Path, tmp_path: Path) -> None:
    for name in ("library", "super"):
        git(home, "init", "-q", name)
        git(home / name, "commit", "-q", "--allow-empty", "-m", f"first of {name}")
    allow = ("-c", "protocol.file.allow=always")
    git(home / "super", *allow, "submodule", "--quiet", "add", str(home / "library"), "module")
    root = home / "super" / "module"
    workspace = Workspace(root, SandboxPolicy(tier="bubblewrap"))
    try:
        shell = await ShellSession.start(workspace)
        text = await told(
            shell, "git log --format=%s; touch f; git add f; git commit -qm second; git status --short"
        )
        assert text == "first of library\n"
        assert (await shell.run(f"echo x >> {home}/super/.git/modules/module/config")).exit_code != 0
        assert (await shell.run(f"ls {home}/super/.git/HEAD")).exit_code != 0, "no more than it needs"
    finally:
        await workspace.close()
    assert git(root, "log", "--format=%s") == "second\nfirst of library\n"


@pytest.mark.case("agent-21")
async def test_a_folder_of_a_repository_as_workspace_works(repository: Path, home: Path) -> None:
    part = repository / "packages" / "one"
    part.mkdir(parents=True)
    (part / "code").write_text("x\n")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "second")
    workspace = Workspace(part, SandboxPolicy(tier="bubblewrap"))
    try:
        shell = await ShellSession.start(workspace)
        outcome = await shell.run(
            "echo y >> code; git status --short; git commit -qam third; git log --format=%s"
        )
        assert outcome.text == " M code\nthird\nsecond\nfirst\n"
        assert any("a part of the repository" in notice for notice in outcome.notices)
        assert await told(shell, "cat ../../file") == "one\n"
        for attack in (
            "echo x > ../../file",
            "echo x > ../../.git/hooks/pre-commit",
            "echo x >> ../../.git/config",
            "git config core.fsmonitor evil",
            "mv ../../.git ../../moved",
            "echo x > ../two",
        ):
            assert (await shell.run(attack)).exit_code != 0, attack
        planted = await shell.run(
            "cd ../../.git; mkdir -p modules/m; cd modules/m; echo x > HEAD; echo '[core]editor=x' > config"
        )
        later = await shell.run("sleep 0.3")
        assert any("core.editor = x (in modules/m)" in notice for notice in planted.notices + later.notices)
    finally:
        await workspace.close()
    assert git(repository, "status", "--short") == ""
    assert not (repository / ".git" / "commondir").exists()


@pytest.mark.case("agent-24")
@pytest.mark.parametrize("forged", ["gitdir", "commondir", "nothing"])
async def test_a_pointer_is_followed_only_if_the_repository_says_so_too(
    root: Path, home: Path, tmp_path: Path, forged: str
) -> None:
    """The workspace's author names a repository of the user's: it must claim the workspace by itself."""
    git(home, "init", "-q", "private")
    private = home / "private"
    git(private, "commit", "-q", "--allow-empty", "-m", "secret")
    git(private, "worktree", "add", "-q", str(tmp_path / "elsewhere"))
    target = private / ".git" / "worktrees" / "elsewhere" if forged == "gitdir" else private / ".git"
    if forged == "commondir":  # a git folder of the author's own that leans on the user's
        target = root / "made"
        target.mkdir()
        (target / "HEAD").write_text("ref: refs/heads/main\n")
        (target / "commondir").write_text(f"{private}/.git\n")
        (target / "gitdir").write_text(f"{root}/.git\n")
    (root / ".git").write_text(f"gitdir: {target}\n")
    sandbox = await started_at(root)
    try:
        assert await fails(sandbox, "git log")
        assert await fails(sandbox, f"ls {private}")
    finally:
        await sandbox.close()


async def test_a_home_that_is_a_repository_stays_hidden(root: Path, home: Path) -> None:
    git(home, "init", "-q")
    (home / "secret").write_text("x")
    sandbox = await started_at(root)
    try:
        assert await fails(sandbox, f"ls {home}/secret")
        assert await fails(sandbox, f"ls {home}/.git")
        assert await fails(sandbox, "git status")
    finally:
        await sandbox.close()


async def started_at(root: Path) -> Sandbox:
    return await start(SandboxPolicy(tier="bubblewrap"), root)


def _same_owner(path: Path, like: Path) -> None:
    assert path.stat().st_uid == like.stat().st_uid


@pytest.mark.case("agent-24")
async def test_worktrees_inside_work_and_say_what_they_said(repository: Path) -> None:
    git(repository, "worktree", "add", "-q", "side")
    workspace = Workspace(repository, SandboxPolicy(tier="bubblewrap"))
    try:
        shell = await ShellSession.start(workspace)
        text = await told(
            shell, "cd side && echo x > g && git add g && git commit -qm second && git log --format=%s; cd .."
        )
        assert "second\nfirst\n" in text
        for attack in ("commondir", "gitdir"):
            assert (await shell.run(f"echo ../evil > .git/worktrees/side/{attack}")).exit_code != 0
        assert (await shell.run("mv .git/worktrees .git/w")).exit_code != 0
        git(repository, "worktree", "remove", "--force", "side")  # on the host, meanwhile
        assert (await shell.run("git status --short")).exit_code == 0
        assert (await shell.run("git worktree add -q again")).exit_code == 0
    finally:
        await workspace.close()


@pytest.mark.parametrize(
    "name", ["config", "commondir", "config.worktree", "modules/m/config", "modules/m/commondir"]
)
async def test_every_guarded_file_is_held_again_after_a_rename_on_the_host(
    repository: Path, name: str
) -> None:
    git(repository, "config", "extensions.worktreeConfig", "true")
    module = repository / ".git" / "modules" / "m"
    git(repository, "init", "-q", "--bare", str(module))
    workspace = Workspace(repository, SandboxPolicy(tier="bubblewrap"))
    path = repository / ".git" / name
    try:
        shell = await ShellSession.start(workspace)
        await shell.run("KEPT=state")
        fresh = path.with_name("fresh")
        fresh.write_bytes(path.read_bytes())
        os.chown(fresh, path.stat().st_uid, path.stat().st_gid)
        fresh.rename(path)
        outcome = await shell.run(f"echo evil >> .git/{name}; echo $KEPT")
        assert "Read-only" in outcome.text
        assert outcome.text.endswith("state\n")
    finally:
        await workspace.close()


async def test_hooks_that_are_replaced_on_the_host_are_held_again(repository: Path) -> None:
    workspace = Workspace(repository, SandboxPolicy(tier="bubblewrap"))
    try:
        shell = await ShellSession.start(workspace)
        hooks = repository / ".git" / "hooks"
        hooks.rename(repository / "old")
        hooks.mkdir()
        os.chown(hooks, repository.stat().st_uid, repository.stat().st_gid)
        assert "Read-only" in await told(shell, "echo evil > .git/hooks/pre-commit")
        assert os.listdir(hooks) == []
    finally:
        await workspace.close()


def test_our_own_git_runs_only_inside_the_sandbox() -> None:
    """A program of ours named `git` is in one place, which hands it to the sandbox."""
    project = Path(__file__).parents[3]
    programs = re.compile(
        r"""(?:run|Popen|exec|spawn|call|output)\w*\([^)]*["']git["']|GIT = \(""", re.DOTALL
    )
    found = {
        path.relative_to(project).as_posix()
        for room in ("tools", "agent", "server")
        for path in (project / room).rglob("*.py")
        if programs.search(path.read_text())
    }
    assert found == {"agent/workspace_facts.py"}
    facts = (project / "agent" / "workspace_facts.py").read_text()
    assert "sandbox.run([*GIT" in facts
    assert "subprocess" not in facts


def test_a_large_tree_is_looked_through_in_bounded_time(tmp_path: Path) -> None:
    deep = tmp_path / "/".join("abcdefghij")
    deep.mkdir(parents=True)
    (deep / ".git").mkdir()
    (tmp_path / "node_modules" / "x" / ".git").mkdir(parents=True)
    found = guard(tmp_path)
    assert found.mounts == []
    found.release()


def test_a_full_disk_leaves_no_empty_file_that_stops_git(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"):
            guard(repository)
    assert not (repository / ".git" / "commondir").exists()
    assert git(repository, "status", "--short") == ""
