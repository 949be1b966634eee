"""From events to frames: the fold that live events and replays share."""

from typing import Any

import orjson
import pytest
from acp.schema import SessionNotification

from agent.events import Event
from server.acp import diffs
from server.acp.diffs import text_diff
from server.acp.frames import DATA_LIMIT, OUTPUT_TAIL, Presenter
from server.store import StoreUnavailable

BLOBS = {"a": b"one\n", "b": b"two\n", "binary": b"\xff\xfe\x00", "c": b"three\n"}


async def blob(hash: str) -> bytes:
    return BLOBS[hash]


def presenter(**fields: Any) -> Presenter:
    return Presenter("S", "/w", blob, lambda _: 1000, lambda: ["m"], **fields)


def event(type: str, data: dict[str, Any], seq: int = 5, turn: int = 1) -> Event:
    return Event(session_id="S", seq=seq, ts=1_000_000, turn=turn, step=2, type=type, data=data)


async def shown(fold: Presenter, *events: Event) -> list[dict[str, Any]]:
    """The frames of the last of these events, as an extended client gets them."""
    frames: list[Any] = []
    for item in events:
        frames = await fold.show(item, 3)
    return [orjson.loads(frame.extended) for frame in frames]


def ref(hash: str) -> dict[str, Any]:
    return {"hash": hash, "size": len(BLOBS.get(hash, b""))}


def edit(path: str, before: str | None, after: str | None) -> Event:
    sides = {"before": ref(before) if before else None, "after": ref(after) if after else None}
    return event("edit", {"call_id": "c", "path": path, "added": 1, "removed": 1, "diff": "", **sides})


async def test_every_frame_is_marked_with_its_event() -> None:
    [frame] = await shown(presenter(), event("text", {"messageId": "m", "offset": 4, "text": "x"}))
    assert frame["params"]["_meta"]["etude"] == {
        "seq": 5,
        "term": 3,
        "ts": 1_000_000,
        "turn": 1,
        "step": 2,
        "messageId": "m",
        "offset": 4,
    }


async def test_an_event_with_several_forms_is_sent_in_numbered_parts() -> None:
    blocks = [{"type": "text", "text": "a"}, {"type": "resource_link", "uri": "u", "name": "n"}]
    frames = await shown(presenter(), event("prompt", {"message_id": "p", "text": "a", "blocks": blocks}))
    kinds = [frame["params"]["update"]["sessionUpdate"] for frame in frames]
    assert kinds == ["user_message_chunk", "user_message_chunk", "session_info_update"]
    marks = [frame["params"]["_meta"]["etude"] for frame in frames]
    assert [(mark["part"], mark["parts"], mark["seq"]) for mark in marks] == [(1, 3, 5), (2, 3, 5), (3, 3, 5)]


async def test_a_named_session_keeps_its_title() -> None:
    [frame] = await shown(presenter(title="Mine"), event("prompt", {"message_id": "p", "text": "a"}))
    assert frame["params"]["update"]["sessionUpdate"] == "user_message_chunk"


async def test_a_change_of_settings_is_told_in_every_form_it_has() -> None:
    frames = await shown(presenter(model="m"), event("config.changed", {"mode": "plan", "title": "T"}))
    updates = [frame["params"]["update"] for frame in frames]
    assert updates[0] == {"sessionUpdate": "current_mode_update", "currentModeId": "plan"}
    assert [option["currentValue"] for option in updates[1]["configOptions"]] == ["plan", "m"]
    assert updates[2] == {"sessionUpdate": "session_info_update", "title": "T"}


@pytest.mark.parametrize("type", ["turn.started", "queued", "checkpoint", "a type of the future"])
async def test_what_has_no_form_is_an_event_of_ours_and_nothing_to_plain_clients(type: str) -> None:
    fold = presenter()
    [frame] = await fold.show(event(type, {"a": 1, "system": "long", "tools": []}), 3)
    assert frame.plain is None
    assert frame.extended is not None
    params = orjson.loads(frame.extended)["params"]
    assert (params["sessionId"], params["seq"], params["term"], params["type"]) == ("S", 5, 3, type)
    assert ("system" in params["data"]) is (type != "turn.started")


async def test_large_data_stays_in_the_log() -> None:
    [frame] = await shown(presenter(), event("workspace", {"diff": "x" * DATA_LIMIT}))
    assert "data" not in frame["params"]


async def test_all_files_of_a_call_are_in_its_content_and_stay_there() -> None:
    fold = presenter()
    call = event("tool.call", {"call_id": "c", "name": "apply_patch", "title": "Two files"})
    await shown(fold, call)
    await shown(fold, edit("x.py", "a", "b"))
    [frame] = await shown(fold, edit("new.py", None, "c"))
    content = frame["params"]["update"]["content"]
    assert content == [
        {"type": "diff", "path": "/w/x.py", "oldText": "one\n", "newText": "two\n"},
        {"type": "diff", "path": "/w/new.py", "newText": "three\n"},
    ]
    result = {"call_id": "c", "name": "apply_patch", "text": "done", "started": 1, "ended": 2}
    [frame] = await shown(fold, event("tool.result", result))
    assert frame["params"]["update"]["status"] == "completed"
    assert "content" not in frame["params"]["update"], "content replaces: the diffs would vanish"


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [("binary", "a", "changed (not text"), ("a", "gone", "not stored any more"), (None, "binary", "created")],
)
async def test_a_diff_that_cannot_be_shown_is_a_sentence(before: str | None, after: str, words: str) -> None:
    [frame] = await shown(presenter(), edit("x", before, after))
    [item] = frame["params"]["update"]["content"]
    assert item["type"] == "content"
    assert words in item["content"]["text"]


async def test_a_deleted_file_is_a_diff_to_nothing() -> None:
    [frame] = await shown(presenter(), edit("x", "a", None))
    [item] = frame["params"]["update"]["content"]
    assert (item["oldText"], item["newText"], item["_meta"]) == ("one\n", "", {"etude": {"deleted": True}})


async def test_plain_clients_get_the_tail_of_the_output_and_ours_get_what_is_new() -> None:
    fold = presenter()
    await fold.show(event("tool.output", {"call_id": "c", "offset": 0, "text": "a" * OUTPUT_TAIL}), 3)
    [frame] = await fold.show(event("tool.output", {"call_id": "c", "offset": OUTPUT_TAIL, "text": "b"}), 3)
    assert frame.extended is not None and frame.plain is not None
    ours, plain = orjson.loads(frame.extended), orjson.loads(frame.plain)
    assert ours["params"]["update"]["content"][0]["content"]["text"] == "b"
    assert ours["params"]["_meta"]["etude"]["offset"] == OUTPUT_TAIL
    assert plain["params"]["update"]["content"][0]["content"]["text"] == "a" * (OUTPUT_TAIL - 1) + "b"


async def test_a_failed_call_says_so() -> None:
    result = {"call_id": "c", "name": "read", "text": "no such file", "error": "invalid_arguments"}
    [frame] = await shown(presenter(), event("tool.result", result))
    update = frame["params"]["update"]
    assert (update["status"], update["rawOutput"]) == ("failed", {"error": "invalid_arguments"})


async def test_cost_adds_up_only_where_everything_was_seen() -> None:
    generation = {"model": "m", "usage": {"input": 90, "output": 10}, "cost": 0.5}
    whole, part = presenter(from_start=True), presenter()
    first, second = event("generation", generation), event("generation", generation, seq=6)
    [frame] = await shown(whole, first, second)
    assert frame["params"]["update"] == {
        "sessionUpdate": "usage_update",
        "used": 100,
        "size": 1000,
        "cost": {"amount": 1.0, "currency": "USD"},
    }
    [frame] = await shown(part, second)
    assert "cost" not in frame["params"]["update"]


async def test_to_dos_are_the_plan() -> None:
    items = [{"content": "a", "status": "completed"}, {"content": "b", "status": "odd"}]
    [frame] = await shown(presenter(), event("todo", {"items": items}))
    assert [entry["status"] for entry in frame["params"]["update"]["entries"]] == ["completed", "pending"]


def test_a_large_file_is_shown_by_what_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diffs, "WHOLE_LIMIT", 200)
    lines = [f"line {k}\n" for k in range(1, 101)]
    changed = [*lines[:49], "changed\n", *lines[50:]]
    item = text_diff("/w/x", "".join(lines), "".join(changed))
    assert item is not None
    assert item["_meta"] == {"etude": {"line": 47}}
    assert item["oldText"] == "".join(lines[46:53])
    assert item["newText"] == "".join([*lines[46:49], "changed\n", *lines[50:53]])
    assert text_diff("/w/x", "".join(lines), "x" * 500) is None


@pytest.mark.parametrize(
    "odd", ["f\udcff.txt", "a" * 10 + "\ud800"], ids=["a name that is no UTF-8", "a model's"]
)
async def test_what_json_cannot_say_is_shown_all_the_same(odd: str) -> None:
    call = event("tool.call", {"call_id": "c", "name": odd, "title": odd, "paths": [odd]}, seq=4)
    [frame] = await shown(presenter(), call, edit(odd, "a", "b"))
    [diff] = frame["params"]["update"]["content"]
    assert diff["path"] == "/w/" + odd.encode("utf-8", "replace").decode()
    [feedback] = await shown(presenter(), event("feedback", {"comment": odd, "count": 2**70}))
    assert feedback["params"]["data"]["count"] == str(2**70)


async def test_an_edit_whose_texts_cannot_be_read_is_a_sentence() -> None:
    async def unreachable(hash: str) -> bytes:
        raise StoreUnavailable("the database is restarting")

    fold = Presenter("S", "/w", unreachable, lambda _: 1000, lambda: ["m"])
    [frame] = await shown(fold, edit("x.py", "a", "b"))
    [item] = frame["params"]["update"]["content"]
    assert item["content"]["text"].startswith("/w/x.py was changed (its content could not be read")


async def test_a_summary_is_a_compaction_or_a_finished_thought() -> None:
    data = {
        "trigger": "budget",
        "segment_before": 1,
        "segment": 2,
        "number": 1,
        "text": "what matters",
        "tokens_before": 9000,
        "tokens_after": 1200,
        "messages": [{"role": "user", "content": "never sent to clients"}],
    }
    [frame] = await presenter().show(event("summary", data), 3)
    assert frame.extended == frame.plain and frame.compaction and "never sent" not in frame.compaction
    thought = orjson.loads(frame.extended or "")["params"]["update"]
    assert (thought["sessionUpdate"], thought["kind"], thought["status"]) == (
        "tool_call",
        "think",
        "completed",
    )
    assert thought["content"][0]["content"]["text"] == "what matters"
    assert thought["title"] == "Earlier messages were summarised: about 9,000 tokens became 1,200"
    SessionNotification.model_validate(orjson.loads(frame.plain or "")["params"])
    own = orjson.loads(frame.compaction)["params"]
    assert own["_meta"]["etude"]["seq"] == 5
    assert own["update"]["compactionId"] == "summary-5" and own["update"]["status"] == "completed"
    assert own["update"]["summary"] == [{"type": "text", "text": "what matters"}]
    assert own["update"]["_meta"]["etude"]["tokensAfter"] == 1200
