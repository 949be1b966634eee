"""Reject and undo over the protocol: previewed, done, recorded; and no true bytes on the way out."""

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.support.acp import RpcFailure
from tools.snapshots import UnknownSnapshot

KEY = "ghp_" + "0123456789abcdefghijABCDEFGHIJ012345"


def edit(path: str, *edits: tuple[str, str]) -> dict[str, Any]:
    hunks = [{"old": old, "new": new} for old, new in edits]
    return {"calls": [{"name": "edit", "arguments": {"path": path, "edits": hunks}}]}


@pytest.mark.case("agent-20")
async def test_a_turn_is_previewed_and_taken_back(serve: Any) -> None:
    server, model = await serve([edit("hello.py", ("'helo'", "'hello'")), "done", "I see"])
    path: Path = server.workspace / "hello.py"
    before = path.read_text()
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        await client.prompt(session, "go")
        path.write_text(path.read_text() + "# mine\n")
        (server.workspace / "other.txt").write_text("mine")
        ask = {"sessionId": session, "target": {"turn": 1}, "kind": "undo"}
        seen = await client.call("_etude/feedback", **ask, preview=True)
        assert seen["restored"] is None and seen["seq"] is None and "mine" in path.read_text()
        assert "+    return 'helo'" in seen["files"][0]["diff"]
        done = await client.call("_etude/feedback", **ask)
        assert path.read_text() == before + "# mine\n"
        assert (server.workspace / "other.txt").read_text() == "mine"
        events = {event.seq: event for event in await server.store.all_events(session)}
        assert events[done["restored"]].type == "restored" and events[done["seq"]].type == "feedback"
        assert events[done["restored"]].data["changed"] == ["hello.py"] and done["kept"] == []
        again = await client.call("_etude/feedback", **ask)
        assert again["restored"] is None and again["files"] == []
        await client.prompt(session, "and now?")
        assert "hello.py (your change was taken back)" in model.requests[-1]["messages"][-1]["content"]
        with pytest.raises(RpcFailure, match="no turn 9"):
            await client.call("_etude/feedback", **{**ask, "target": {"turn": 9}})
        thumbs = await client.call("_etude/feedback", **{**ask, "kind": "thumbs_up"})
        assert thumbs.keys() == {"seq"}


async def test_one_hunk_is_rejected(serve: Any) -> None:
    server, _ = await serve([edit("hello.py", ("greet", "hail"), ("'helo'", "'hello'")), "done"])
    path: Path = server.workspace / "hello.py"
    path.write_text("def greet():\n    pass\n    pass\n    pass\n    return 'helo'\n")
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        await client.prompt(session, "go")
        changed = next(event for event in await server.store.all_events(session) if event.type == "edit")
        target = {"seq": changed.seq, "hunk": 2}
        await client.call("_etude/feedback", sessionId=session, target=target, kind="reject")
    assert path.read_text() == "def hail():\n    pass\n    pass\n    pass\n    return 'helo'\n"


async def test_hunks_that_are_rejected_at_once_are_all_taken_back(serve: Any) -> None:
    lines = [f"line {n}\n" for n in range(60)]
    edits = [(f"line {n}\n", f"other {n}\n") for n in (5, 20, 35, 50)]
    server, _ = await serve([edit("a.txt", *edits), "done", edit("a.txt", ("line 10\n", "more\n")), "done"])
    path: Path = server.workspace / "a.txt"
    path.write_text("".join(lines))
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        await client.prompt(session, "go")
        changed = next(event for event in await server.store.all_events(session) if event.type == "edit")
        rejected = [
            client.call(
                "_etude/feedback",
                sessionId=session,
                target={"seq": changed.seq, "hunk": hunk},
                kind="reject",
            )
            for hunk in (1, 2, 3, 4)
        ]
        *done, _ = await asyncio.gather(*rejected, client.prompt(session, "again"))
    assert [one["kept"] for one in done] == [[], [], [], []]
    assert "other" not in path.read_text()


async def test_true_contents_are_in_the_store_alone_and_go_with_their_session(serve: Any) -> None:
    server, _ = await serve([edit("key.py", ("old = 1", "new = 2")), "done"])
    (server.workspace / "key.py").write_text(f'token = "{KEY}"\nold = 1\n')
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        await client.prompt(session, "go")
        changed = next(event for event in await server.store.all_events(session) if event.type == "edit")
        name = changed.data["after"]["hash"]
        kept = server.hub.opener.snapshots
        assert KEY.encode() in await kept.read(name)
        diffs = [update for update in client.updates("tool_call_update") if "new = 2" in json.dumps(update)]
        assert diffs and KEY not in json.dumps(client.updates())
        request = urllib.request.Request(
            f"{server.url}/api/blobs/{name}", headers={"Authorization": f"Bearer {server.token}"}
        )
        with pytest.raises(urllib.error.HTTPError, match="404"):
            await asyncio.to_thread(urllib.request.urlopen, request)
        assert KEY.encode() not in (server.folder / "etude.db").read_bytes()
    async with server.client() as client:  # replayed to somebody who comes later
        await client.call("session/load", sessionId=session, cwd=str(server.workspace), mcpServers=[])
        assert KEY not in json.dumps(client.updates()) and "new = 2" in json.dumps(client.updates())
        kept_for = server.hub.opener.snapshots.folder / "refs" / session
        assert kept_for.exists()
        await client.call("session/delete", sessionId=session)
        assert not kept_for.exists()
    await kept.sweep(young_s=0)
    with pytest.raises(UnknownSnapshot):
        await kept.read(name)
