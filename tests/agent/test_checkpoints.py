"""Checkpoints in the log: who changed what, what the model is told, and taking back what the agent did."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent.events import Event
from agent.log import MemoryLog
from agent.session import Session
from agent.state import fold
from agent.undo import Target, take_back
from tests.support.scripted_model import ScriptedModel
from tests.support.trees import tree_of
from tests.support.turns import call, data, kinds, opened, turn
from tools.errors import InvalidArguments
from tools.merge import hunks
from tools.snapshots import Limits, SnapshotStore
from tools.workspace import content_hash


@contextlib.asynccontextmanager
async def kept(root: Path, model: ScriptedModel, **options: Any) -> AsyncIterator[Session]:
    """A session whose workspace has a store of snapshots."""
    async with opened(root, model, **options) as session:
        session.workspace.snapshots = SnapshotStore(root.parent / "snapshots")
        yield session


def log_of(session: Session) -> list[Event]:
    assert isinstance(session.log, MemoryLog)
    return list(session.log.events)


def reasons(events: list[Event]) -> list[str]:
    return [item["reason"] for item in data(events, "checkpoint")]


async def test_states_are_logged_at_the_prompt_and_after_each_changing_step(root: Path, script: Any) -> None:
    model = script(
        [
            {"calls": [call("read", path="a.py")]},
            {"calls": [call("edit", path="a.py", edits=[{"old": "one = 1", "new": "one = 11"}])]},
            {"calls": [call("shell", command="echo made > c.txt; rm b.py")]},
            {"text": "done"},
        ]
    )
    async with kept(root, model) as session:
        events = await turn(session)
        store = session.workspace.snapshots
        assert store is not None
        assert reasons(events) == ["prompt", "step", "step"]
        first, second, third = data(events, "checkpoint")
        assert [change.path for change in await store.diff(first["tree"], second["tree"])] == [b"a.py"]
        assert [change.path for change in await store.diff(second["tree"], third["tree"])] == [
            b"b.py",
            b"c.txt",
        ]
        assert second["accounted"] and not third["accounted"] and first["files"] == 2
        assert not data(events, "user_edit")
        edit = data(events, "edit")[0]
        assert await store.read(edit["before"]["hash"]) == b"one = 1\n"
        assert await store.read(edit["after"]["hash"]) == b"one = 11\n"
        assert edit["before"]["hash"] not in session.log.blobs  # pyright: ignore[reportAttributeAccessIssue]
        state = fold(log_of(session))
        assert state.tree == third["tree"] and not state.unsettled


async def test_a_turn_that_changes_nothing_has_one_checkpoint(root: Path, script: Any) -> None:
    async with kept(root, script(["hello"])) as session:
        events = await turn(session)
        assert reasons(events) == ["prompt"]
        assert kinds(events)[-1] == "turn.ended"


async def test_what_a_person_changes_between_turns_is_told(root: Path, script: Any) -> None:
    model = script(
        [
            {"calls": [call("edit", path="a.py", edits=[{"old": "one = 1", "new": "one = 11"}])]},
            {"text": "done"},
            {"text": "I see"},
            {"text": "and again"},
        ]
    )
    async with kept(root, model) as session:
        await turn(session)
        (root / "b.py").unlink()
        (root / "a.py").write_text("one = 11\nmine = 2\n")
        events = await turn(session, "what now?")
        edits = {item["path"]: item for item in data(events, "user_edit")}
        assert sorted(edits) == ["a.py", "b.py"]
        assert edits["a.py"]["before"]["hash"] == content_hash(b"one = 11\n")
        assert "+mine = 2" in edits["a.py"]["diff"] and "after" not in edits["b.py"]
        assert reasons(events) == ["prompt"] and data(events, "checkpoint")[0]["user_edits"] == 2
        told = model.requests[-1]["messages"][-1]["content"]
        assert told.startswith("what now?") and "a.py, b.py (deleted)" in told
        await turn(session, "go on")
        assert "Changed by the user" not in model.requests[-1]["messages"][-1]["content"]
        assert model.requests[-1]["messages"][:-2] == model.requests[-2]["messages"]
        assert fold(log_of(session)).messages == session.state.messages


async def test_what_a_person_changes_during_a_turn_is_told_apart(root: Path, script: Any) -> None:
    def meanwhile(body: Any) -> Any:
        (root / "b.py").write_text("two = 22\n")
        return {"calls": [call("edit", path="a.py", edits=[{"old": "one = 1", "new": "one = 11"}])]}

    def again(body: Any) -> Any:
        (root / "b.py").write_text("two = 222\n")
        return {"calls": [call("shell", command="echo x >> a.py")]}

    async with kept(root, script([meanwhile, again, {"text": "done"}, {"text": "ok"}])) as session:
        await turn(session)
        events = log_of(session)
        assert reasons(events) == ["prompt", "step", "user", "step"]
        assert [(item["path"], item["after"]["hash"]) for item in data(events, "user_edit")] == [
            ("b.py", content_hash(b"two = 22\n")),
            ("b.py", content_hash(b"two = 222\n")),
        ]
        await turn(session, "next")
        assert "[Changed by the user since your last turn: b.py." in session.state.messages[-2]["content"]
        done = await take_back(session, events, Target(turn=1))
        assert done.event is not None and done.event.data["changed"] == ["a.py"]
        assert (root / "a.py").read_text() == "one = 1\n" and (root / "b.py").read_text() == "two = 222\n"


@pytest.mark.case("agent-20")
async def test_undo_of_a_turn_keeps_what_the_user_did_later(root: Path, script: Any) -> None:
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "a.py").write_text("one = 1\n\n\n\n\n\nlast = 9\n")
    before = tree_of(root)
    model = script(
        [
            {
                "calls": [
                    call("edit", path="a.py", edits=[{"old": "one = 1", "new": "one = 11\nmore = 2"}]),
                    call("edit", path="a.py", edits=[{"old": "more = 2", "new": "more = 3"}]),
                    call("edit", path="new/c.py", edits=[{"old": "", "new": "c = 1\n"}]),
                ]
            },
            {"calls": [call("shell", command="rm run.sh; mkdir out; echo x > out/y; echo >> b.py")]},
            {"text": "done"},
            {"text": "nothing to do"},
        ]
    )
    async with kept(root, model) as session:
        await turn(session)
        (root / "a.py").write_text((root / "a.py").read_text().replace("last = 9", "last = 10"))
        (root / "mine.txt").write_text("mine")
        await turn(session, "thanks")
        after = tree_of(root)
        preview = await take_back(session, log_of(session), Target(turn=1), preview=True)
        assert tree_of(root) == after and preview.event is None
        shown = {one["path"]: one for one in preview.files()}
        assert (
            "-more = 3" in shown["a.py"]["diff"] and "last = 10" not in shown["a.py"]["diff"].split("\n")[-2]
        )
        nothing = await take_back(session, log_of(session), Target(turn=2))
        assert nothing.event is None and tree_of(root) == after
        done = await take_back(session, log_of(session), Target(turn=1))
        assert done.event is not None and not done.event.data["kept"] and not done.event.data["conflicts"]
        (root / "mine.txt").unlink()
        (root / "a.py").write_text((root / "a.py").read_text().replace("last = 10", "last = 9"))
        assert tree_of(root) == before
        assert reasons(log_of(session))[-1] == "restore"
        store = session.workspace.snapshots
        assert store is not None
        await store.restore(root, done.event.data["before"])
        assert tree_of(root) == after


async def test_one_hunk_and_one_file_go_back(root: Path, script: Any) -> None:
    text = "".join(f"line {number}\n" for number in range(12))
    (root / "a.py").write_text(text)
    edits = [{"old": "line 1\n", "new": "LINE 1\n"}, {"old": "line 9\n", "new": "LINE 9\n"}]
    model = script(
        [
            {"calls": [call("edit", path="a.py", edits=edits)]},
            {"calls": [call("edit", path="b.py", edits=[{"old": "two", "new": "three"}])]},
            {"text": "done"},
        ]
    )
    async with kept(root, model) as session:
        await turn(session)
        events = log_of(session)
        edit = next(event for event in events if event.type == "edit")
        first, second = hunks(text.encode(), (root / "a.py").read_bytes())
        await take_back(session, events, Target(seq=edit.seq, hunk=second.id))
        assert (root / "a.py").read_text() == text.replace("line 1\n", "LINE 1\n")
        await take_back(session, events, Target(seq=edit.seq, hunk=1))
        assert (root / "a.py").read_text() == text
        await take_back(session, events, Target(turn=1, path="a.py"))
        assert (root / "a.py").read_text() == text and (root / "b.py").read_text() == "three = 2\n"
        for target in (Target(seq=edit.seq, hunk="nothing"), Target(seq=1), Target(turn=9)):
            with pytest.raises(InvalidArguments):
                await take_back(session, events, target)
        assert first.id != second.id


@pytest.mark.case("agent-20")
async def test_a_conflict_is_recorded_and_the_users_lines_stay(root: Path, script: Any) -> None:
    model = script(
        [
            {"calls": [call("edit", path="a.py", edits=[{"old": "one = 1", "new": "one = 11"}])]},
            {"text": "done"},
            {"text": "ok"},
        ]
    )
    async with kept(root, model) as session:
        await turn(session)
        (root / "a.py").write_text("one = 12\n")
        done = await take_back(session, log_of(session), Target(turn=1))
        assert (root / "a.py").read_text() == "one = 12\n"
        assert done.files()[0]["conflicts"] == [
            {"line": 1, "why": "both sides changed it", "current": "one = 12\n", "proposed": "one = 1\n"}
        ]
        assert done.event is not None and done.event.data["conflicts"][0]["path"] == "a.py"


async def test_a_turn_that_is_cut_off_still_says_what_it_did(root: Path, script: Any) -> None:
    model = script([{"calls": [call("shell", command="echo x > c.txt; sleep 60")]}, {"text": "done"}])
    async with kept(root, model) as session:
        running = asyncio.create_task(turn(session))
        while not (root / "c.txt").exists():
            await asyncio.sleep(0.02)
        session.cancel()
        events = await running
        assert reasons(events)[-1] == "end" and kinds(events)[-1] == "turn.ended"
        assert not data(events, "user_edit")
        await take_back(session, log_of(session), Target(turn=1))
        assert not (root / "c.txt").exists()


async def test_after_a_crash_nothing_is_called_the_users(root: Path, script: Any) -> None:
    model = script([{"calls": [call("shell", command="true")]}, {"text": "done"}])
    async with kept(root, model) as session:
        await turn(session)
        events = log_of(session)
    cut = next(event.seq for event in events if event.type == "tool.call")
    (root / "a.py").write_text("by whom?\n")
    async with kept(root, script(["hello"]), events=[event for event in events if event.seq <= cut]) as again:
        await turn(again)
        later = [event for event in log_of(again) if event.seq > cut]
        assert reasons(later) == ["prompt"] and not data(later, "user_edit")


async def test_a_store_that_fails_is_said_and_stops_nothing(root: Path, script: Any) -> None:
    model = script(
        [
            {"calls": [call("edit", path="a.py", edits=[{"old": "one = 1", "new": "one = 11"}])]},
            {"text": "done"},
        ]
    )
    async with kept(root, model) as session:
        blocked = root.parent / "snapshots"
        blocked.write_text("a file where a folder should be")
        events = await turn(session)
        assert (root / "a.py").read_text() == "one = 11\n"
        assert all("cannot be" in item["partial"] for item in data(events, "checkpoint"))
        assert data(events, "turn.ended")[0]["reason"] == "end_turn"


async def test_a_slow_snapshot_is_partial_and_holds_nothing_up(
    root: Path, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.checkpoints.STEP_LIMITS", Limits(seconds=0))
    monkeypatch.setattr("agent.checkpoints.PROMPT_LIMITS", Limits(seconds=0))
    (root / "folder").mkdir()
    model = script([{"calls": [call("shell", command="echo > c.txt")]}, {"text": "done"}])
    async with kept(root, model) as session:
        events = await turn(session)
        assert all("no time or room" in item["partial"] for item in data(events, "checkpoint"))
        assert data(events, "turn.ended")[0]["reason"] == "end_turn"


async def test_targets_that_clients_name() -> None:
    assert Target.of({"turn": 3}) == Target(turn=3)
    assert Target.of({"seq": 4, "hunk": "abc"}) == Target(seq=4, hunk="abc")
    assert Target.of({"turn": 3, "path": "a.py"}) == Target(turn=3, path="a.py")
    for other in ({}, {"messageId": "m"}, {"turn": True}, {"turn": 1, "hunk": "x"}, {"seq": 1, "path": 2}):
        assert Target.of(other) is None


async def test_a_workspace_that_is_gone_ends_no_turn_badly(root: Path, script: Any) -> None:
    async with kept(root, script([{"text": "hello"}, {"text": "hello"}])) as session:
        await turn(session)
        shutil.rmtree(root)
        events = await turn(session)
        assert kinds(events)[-1] == "turn.ended"


async def test_links_and_pipes_that_the_agent_removed_are_its_doing_and_come_back(
    root: Path, script: Any
) -> None:
    (root / "link").symlink_to("nowhere")
    (root / "moved").symlink_to("a.py")
    os.mkfifo(root / "pipe")
    (root / "folder" / "empty").mkdir(parents=True)
    (root / "folder" / "link").symlink_to("..")
    before = tree_of(root)
    calls = [
        *(call("delete", path=path) for path in ("link", "pipe", "folder/")),
        call("move", source="moved", target="elsewhere"),
    ]
    async with kept(root, script([{"calls": calls}, "done"])) as session:
        events = await turn(session)
        assert not data(events, "user_edit")
        assert not {b"link", b"pipe", b"folder", b"moved"} & tree_of(root).keys()
        await take_back(session, log_of(session), Target(turn=1))
    assert tree_of(root) == before


async def test_an_edit_of_what_no_snapshot_covers_is_not_called_the_users(root: Path, script: Any) -> None:
    (root / ".gitignore").write_text("node_modules\n")
    (root / "node_modules").mkdir()
    (root / "node_modules" / "left.js").write_text("one = 1\n")
    calls = [
        call("read", path="node_modules/left.js"),
        call("edit", path="node_modules/left.js", edits=[{"old": "one = 1", "new": "one = 2"}]),
        call("write", path="other.py", content="x = 1\n"),
    ]
    async with kept(root, script([*({"calls": [one]} for one in calls), "done"])) as session:
        events = await turn(session)
        assert kinds(events, "edit") == ["edit", "edit"] and not data(events, "user_edit")
        await take_back(session, log_of(session), Target(turn=1))
    assert (root / "node_modules" / "left.js").read_text() == "one = 1\n"
    assert not (root / "other.py").exists()
