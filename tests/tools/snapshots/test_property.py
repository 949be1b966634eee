"""Random edits of an agent and of a user, moves, modes, links, deletions, crashes: the user's bytes stay.

Every line says who wrote it. Undoing what the agent did takes no line of the user's away, a restore gives
exactly what was there, and both hold when the process dies in the middle and the next one finishes its work.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.trees import tree_of
from tools.snapshots import SnapshotStore
from tools.snapshots.journal import finish

HERE = Path(__file__).resolve().parents[3]
NAMES = st.sampled_from(["a", "b", "dir/c", "dir/deep/d", "é", "new\nline"])
MODES = st.sampled_from([0o644, 0o755, 0o600])

CHILD = """
import os, signal, sys, threading
from pathlib import Path
from tools.snapshots import SnapshotStore, undoing
from tools.snapshots.journal import carry_out

what, root, folder, stage, *trees = sys.argv[1:]
root, store = Path(root), SnapshotStore(Path(folder))

def progress(reached):
    if reached == stage:
        os.kill(os.getpid(), signal.SIGKILL)

def late(*_):
    os.kill(os.getpid(), signal.SIGKILL)

if what == "take":
    import tools.snapshots.objects as objects
    steps = int(stage)
    real = os.replace
    def replace(*given, **named):
        global steps
        steps -= 1
        if steps < 0:
            late()
        return real(*given, **named)
    os.replace = replace
    store._take(root, store.limits)
elif what == "undo":
    plan = undoing.plan(store.objects, root, undoing.between(store.objects, *trees))
    undoing.store_contents(store.objects, plan)
    carry_out(store.objects, root, plan.steps, {"undo": trees[0]}, progress)
else:
    import tools.snapshots.store as module
    real_carry = module.carry_out
    module.carry_out = lambda *given: real_carry(*given, progress)
    store._restore(root, trees[0], None)
"""
STAGES = st.sampled_from(["journal", "checked", "removed", "folders", "written", "renamed", "never"])


class Life(RuleBasedStateMachine):
    """A workspace in which an agent and a user work by turns."""

    @initialize()
    def begin(self) -> None:
        # In memory where that can be had: this is not about a disk's speed.
        self.home = Path(tempfile.mkdtemp(dir=next(filter(os.path.isdir, ("/dev/shm",)), None)))
        self.root = self.home / "repo"
        self.root.mkdir()
        (self.root / "a").write_text("".join(f"start {n}\n" for n in range(8)))
        self.store = SnapshotStore(self.home / "snapshots")
        self.states: dict[str, dict[bytes, Any]] = {}
        self.count = 0
        self.agents: tuple[str, str] | None = None
        """The last turn of the agent, before and after, while it was not taken back."""
        self.since: set[str] = set()
        """Lines that the user wrote since then."""

    def teardown(self) -> None:
        shutil.rmtree(getattr(self, "home", "/nonexistent"), ignore_errors=True)

    def take(self) -> str:
        tree = asyncio.run(self.store.take(self.root)).tree
        self.states[tree] = tree_of(self.root)
        return tree

    def line(self, who: str) -> str:
        self.count += 1
        return f"{who} {self.count}\n"

    def write(self, name: str, at: int, who: str) -> str:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            path.unlink()
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        line = self.line(who)
        at = min(at, len(lines))
        lines[at:at] = [line]
        path.write_text("".join(lines))
        return line

    def files(self) -> list[Path]:
        return sorted(path for path in self.root.rglob("*") if path.is_file() and not path.is_symlink())

    def users_lines(self) -> set[str]:
        return {
            line
            for path in self.files()
            for line in path.read_text().splitlines(keepends=True)
            if line.startswith("user")
        }

    # ---- the agent

    @rule(names=st.lists(NAMES, min_size=1, max_size=3), at=st.integers(0, 9), mode=MODES, data=st.data())
    def agents_turn(self, names: list[str], at: int, mode: int, data: st.DataObject) -> None:
        before = self.take()
        for name in names:
            match data.draw(st.sampled_from(["write", "replace", "delete", "move", "link", "mode"])):
                case "write":
                    self.write(name, at, "agent")
                case "replace" if self.files():
                    path = data.draw(st.sampled_from(self.files()))
                    lines = [
                        line if line.startswith("user") else self.line("agent")
                        for line in path.read_text().splitlines(keepends=True)
                    ]
                    path.write_text("".join(lines))
                case "delete" if self.files():
                    data.draw(st.sampled_from(self.files())).unlink()
                case "move" if self.files():
                    path = data.draw(st.sampled_from(self.files()))
                    target = self.root / f"moved{self.count}"
                    self.count += 1
                    path.rename(target)
                case "link" if not (self.root / name).exists() and (self.root / name).parent.is_dir():
                    (self.root / name).unlink(missing_ok=True)
                    (self.root / name).symlink_to("a")
                case "mode" if self.files():
                    data.draw(st.sampled_from(self.files())).chmod(mode)
                case _:
                    pass
        self.agents, self.since = (before, self.take()), set()

    # ---- the user

    @rule(name=NAMES, at=st.integers(0, 9))
    def user_writes(self, name: str, at: int) -> None:
        self.since.add(self.write(name, at, "user"))

    @rule(data=st.data(), mode=MODES)
    def user_sets_a_mode(self, data: st.DataObject, mode: int) -> None:
        if self.files():
            data.draw(st.sampled_from(self.files())).chmod(mode)

    @rule(data=st.data())
    def user_deletes(self, data: st.DataObject) -> None:
        if self.files():
            path = data.draw(st.sampled_from(self.files()))
            self.since -= set(path.read_text().splitlines(keepends=True))
            path.unlink()

    # ---- going back

    @precondition(lambda self: self.agents is not None)
    @rule()
    def undo(self) -> None:
        assert self.agents is not None
        plan = asyncio.run(self.store.undo_changes(self.root, *self.agents))
        users = self.users_lines()
        done = asyncio.run(self.store.apply(self.root, plan))
        assert users <= self.users_lines()
        self.remember(done.before.tree)
        if not self.since and not plan.conflicts and not done.kept:
            asyncio.run(self.store.take(self.root))
        self.agents = None

    @precondition(lambda self: self.agents is not None)
    @rule(stage=STAGES)
    def undo_that_dies(self, stage: str) -> None:
        assert self.agents is not None
        users = self.users_lines()
        self.child("undo", stage, *self.agents)
        list(finish(self.store.objects, self.root))
        assert users <= self.users_lines()
        self.agents = None

    @precondition(lambda self: self.states)
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        tree = data.draw(st.sampled_from(sorted(self.states)))
        if not self.states[tree]:
            return
        now = tree_of(self.root)
        restored = asyncio.run(self.store.restore(self.root, tree))
        assert not restored.kept and tree_of(self.root) == self.states[tree]
        if now:
            asyncio.run(self.store.restore(self.root, restored.before.tree))
            assert tree_of(self.root) == now

    @precondition(lambda self: self.states)
    @rule(data=st.data(), stage=STAGES)
    def restore_that_dies(self, data: st.DataObject, stage: str) -> None:
        tree = data.draw(st.sampled_from(sorted(self.states)))
        if not self.states[tree]:
            return
        now = self.take()
        self.child("restore", stage, tree)
        list(finish(self.store.objects, self.root))
        assert tree_of(self.root) == self.states[tree]
        if self.states[now]:
            asyncio.run(self.store.restore(self.root, now))
            assert tree_of(self.root) == self.states[now]

    @rule(steps=st.integers(0, 6))
    def take_that_dies(self, steps: int) -> None:
        before = tree_of(self.root)
        self.child("take", str(steps))
        assert tree_of(self.root) == before

    # ---- always

    def remember(self, tree: str) -> None:
        """A snapshot is whole: all of it can be read."""
        for entry in asyncio.run(self.store.entries(tree)).values():
            if entry.stored:
                asyncio.run(self.store.read(entry.name))

    def child(self, what: str, stage: str, *trees: str) -> None:
        ran = subprocess.run(
            [sys.executable, "-c", CHILD, what, str(self.root), str(self.store.folder), stage, *trees],
            cwd=HERE,
            capture_output=True,
            text=True,
        )
        assert ran.returncode in (0, -signal.SIGKILL), ran.stderr
        self.store = SnapshotStore(self.home / "snapshots")

    @invariant()
    def nothing_is_left_lying_about(self) -> None:
        if hasattr(self, "root"):
            assert not [name for name in os.listdir(self.root) if name.startswith(".etude-")]


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=8,
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large),
)
