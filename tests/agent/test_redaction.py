"""Redaction in a session: each way in, each way out, with real tools and a scripted model."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from agent.events import Event, Live, Prompt
from agent.log import MemoryLog
from agent.loop import run_turn
from agent.outcomes import DIFF_LIMIT
from agent.session import Session
from tests.support.planted import planted
from tests.support.scripted_model import ScriptedModel
from tests.support.turns import call, data, opened, turn
from tools.redaction import PATTERN, Redactor

TOKEN = planted(1)[0].values[0]
KEY = planted(1)[-3]
assert KEY.name == "private key"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "work"
    folder.mkdir()
    (folder / "a.cfg").write_text(f"one = 1\nGITHUB_TOKEN={TOKEN}\n")
    (folder / "key.pem").write_text(f"{KEY.text}\n")
    return folder


@pytest.fixture
def script() -> Iterator[Any]:
    with ExitStack() as stack:
        yield lambda turns: stack.enter_context(ScriptedModel(turns))


def everything(session: Session) -> str:
    """All that the log of a session holds."""
    log = session.log
    assert isinstance(log, MemoryLog)
    blobs = [blob.decode("utf-8", "replace") for blob in log.blobs.values()]
    return "\n".join([*(json.dumps(event.data, ensure_ascii=False) for event in log.events), *blobs])


def placeholder(body: dict[str, Any]) -> str:
    found = PATTERN.search(json.dumps(body["messages"]))
    assert found
    return found[0]


async def test_a_prompt_is_redacted_before_anything_sees_it(root: Path, script: Any) -> None:
    model = script(["ok"])
    blocks = [
        {"type": "text", "text": f"use {TOKEN}"},
        {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"},
    ]
    async with opened(root, model) as session:
        prompt = Prompt(
            message_id="m", text=f"use {TOKEN}", blocks=blocks, editor={"selection": [{"text": TOKEN}]}
        )
        events = [message async for message in run_turn(session, prompt) if isinstance(message, Event)]
        assert session.state.title is not None
        assert TOKEN not in session.state.title
        await session.configure(title=f"about {TOKEN}")
        await session.steer(Prompt(message_id="n", text=f"no, {TOKEN}"))
        await session.queue(Prompt(message_id="q", text=f"then {TOKEN}"))
        assert TOKEN not in everything(session)
    assert data(events, "prompt")[0]["blocks"][1] == blocks[1]
    assert TOKEN not in json.dumps(model.requests)


async def test_a_prompt_is_logged_though_it_is_cancelled_while_it_is_redacted(
    root: Path, script: Any
) -> None:
    model = script(["ok"])
    async with opened(root, model) as session:
        running = asyncio.create_task(turn(session, "word " * 20_000))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        session.cancel()
        events = await running
    kinds = [event.type for event in events]
    assert kinds[0] == "prompt"
    assert kinds[-1] == "turn.ended"


async def test_placeholders_are_put_back_by_edits_alone(root: Path, script: Any) -> None:
    def use(body: dict[str, Any]) -> dict[str, Any]:
        secret = placeholder(body)
        return {
            "calls": [
                call(
                    "edit", path="a.cfg", edits=[{"old": f"GITHUB_TOKEN={secret}", "new": f"TOKEN={secret}"}]
                ),
                call("write", path="b.cfg", content=f"x = {secret}\n"),
                call("shell", command=f"echo {secret} > c.cfg"),
                call("grep", pattern=secret),
                call("todo", items=[{"content": f"rotate {secret}", "status": "pending"}]),
            ]
        }

    model = script([{"calls": [call("read", path="a.cfg")]}, use, "done"])
    async with opened(root, model) as session:
        events = await turn(session)
        assert TOKEN not in everything(session)
    results = data(events, "tool.result")
    assert [bool(result.get("error")) for result in results] == [False, False, False, True, True, False]
    assert "commands are never given" in results[3]["text"]
    assert "Only apply_patch, edit, write put secrets back" in results[4]["text"]
    assert (root / "a.cfg").read_text() == f"one = 1\nTOKEN={TOKEN}\n"
    assert (root / "b.cfg").read_text() == f"x = {TOKEN}\n"
    assert not (root / "c.cfg").exists()
    logged = data(events, "tool.call")[1]["arguments"]["edits"][0]["old"]
    assert PATTERN.search(logged)


async def test_what_only_looks_like_a_placeholder_is_the_files_own(root: Path, script: Any) -> None:
    own = "[secret:github-token:0123abcd]"
    (root / "page.md").write_text(f"such as `{own}`\n")
    edits = [{"old": f"such as `{own}`", "new": f"for example `{own}`"}]
    model = script(
        [
            {"calls": [call("edit", path="page.md", edits=edits), call("write", path="n.md", content=own)]},
            "ok",
        ]
    )
    async with opened(root, model) as session:
        results = data(await turn(session), "tool.result")
    assert (root / "page.md").read_text() == f"for example `{own}`\n"
    assert results[1]["error"] == "invalid_arguments"
    assert not (root / "n.md").exists()


async def test_live_output_is_redacted_and_says_what_is_stored(root: Path, script: Any) -> None:
    command = (
        "for i in 1 2 3; do cat a.cfg key.pem; sleep 0.1; done; printf 'no end of line %s' \"$(cat a.cfg)\""
    )
    model = script([{"calls": [call("shell", command=command)]}, "ok"])
    async with opened(root, model) as session:
        shown: dict[str, str] = {}
        stored: dict[str, str] = {}

        def hear(message: Event | Live) -> None:
            if isinstance(message, Live) and message.type == "tool.output":
                have = shown.get(message.message_id, "")
                assert message.offset == len(have)
                shown[message.message_id] = have + message.text
            elif isinstance(message, Event) and message.type == "tool.output":
                assert message.data["offset"] == len(stored.get(message.data["call_id"], ""))
                stored[message.data["call_id"]] = (
                    stored.get(message.data["call_id"], "") + message.data["text"]
                )

        session.listen(hear)
        await turn(session)
        text = "".join(shown.values())
        assert shown == stored
        assert text.count("one = 1") == 4
        assert not any(value in text for value in (TOKEN, *KEY.values))
        assert not any(value in everything(session) for value in (TOKEN, *KEY.values))


async def test_the_whole_of_a_long_output_is_redacted_too(root: Path, script: Any) -> None:
    model = script([{"calls": [call("shell", command="seq 1 20000; cat a.cfg key.pem; seq 1 20000")]}, "ok"])
    async with opened(root, model) as session:
        events = await turn(session)
        reference = data(events, "tool.result")[0]["output"]
        whole = await session.log.blob(reference["hash"])
    assert len(whole) == reference["size"]
    assert b"GITHUB_TOKEN=[secret:github-token:" in whole
    assert TOKEN.encode() not in whole
    assert whole.count(b"[secret:private-key:") == len(KEY.values)


async def test_a_known_value_in_an_answer_is_replaced_and_its_tokens_are_not_kept(
    root: Path, script: Any
) -> None:
    model = script(
        [{"calls": [call("read", path="a.cfg")]}, {"text": f"It is {TOKEN}, I think.", "chunk": 3}, "ok"]
    )
    async with opened(root, model) as session:
        live: list[str] = []
        session.listen(lambda message: live.append(message.text) if isinstance(message, Live) else None)
        events = await turn(session)
        assert TOKEN not in everything(session)
        generation = data(events, "generation")[-1]
        assert "".join(live) == generation["text"]
    assert generation["text"].startswith("It is [secret:github-token:")
    assert generation["text"].endswith("], I think.")
    assert "tokens" not in generation
    assert [error["error"] for error in data(events, "error")] == ["secret_in_generation"]


async def test_what_the_model_makes_up_is_kept_as_it_wrote_it(root: Path, script: Any) -> None:
    made_up = 'PASSWORD = "Fixture9!Pw7xZ"\n'
    write = call("write", path="test_login.py", content=made_up)
    model = script(
        [{"calls": [write]}, {"calls": [call("read", path="test_login.py")]}, "Fixture9!Pw7xZ is set."]
    )
    async with opened(root, model) as session:
        events = await turn(session)
    assert (root / "test_login.py").read_text() == made_up
    assert data(events, "generation")[-1]["text"] == "Fixture9!Pw7xZ is set."
    assert data(events, "error") == []


async def test_questions_are_asked_without_secrets(root: Path, script: Any) -> None:
    from agent.approval import Decision
    from agent.events import ApprovalRequested

    asked: list[ApprovalRequested] = []

    async def answer(request: ApprovalRequested) -> Decision:
        asked.append(request)
        return Decision("allowed", "allow", "test")

    edits = [{"old": "one = 1", "new": "one = 2"}]
    model = script([{"calls": [call("edit", path="a.cfg", edits=edits)]}, "ok"])
    async with opened(root, model, mode="ask", approve=answer) as session:
        await turn(session)
        assert TOKEN not in everything(session)
    assert asked[0].diffs[0]["new"].startswith("one = 2\nGITHUB_TOKEN=[secret:")
    assert (root / "a.cfg").read_text() == f"one = 2\nGITHUB_TOKEN={TOKEN}\n"


async def test_placeholders_are_recomputed_from_files_the_model_has_seen(root: Path, script: Any) -> None:
    key, remembered = bytes(32), ""

    def remember(body: dict[str, Any]) -> str:
        nonlocal remembered
        remembered = placeholder(body)
        return "ok"

    model = script(
        [
            {"calls": [call("read", path="a.cfg")]},
            remember,
            lambda body: {"calls": [call("write", path="b", content=remembered)]},
            "ok",
        ]
    )
    async with opened(root, model, redactor=Redactor(key, "s")) as session:
        await turn(session)
        log = session.log
    assert isinstance(log, MemoryLog)
    async with opened(root, model, redactor=Redactor(key, "s"), log=log) as session:
        await turn(session)
    assert (root / "b").read_text() == TOKEN
    async with opened(
        root,
        script([{"calls": [call("write", path="c", content=remembered)]}, "ok"]),
        redactor=Redactor(bytes([1] * 32), "s"),
    ) as session:
        results = data(await turn(session), "tool.result")
    assert results[0]["error"] == "invalid_arguments"


async def test_a_long_diff_is_redacted_and_logged_in_part(root: Path, script: Any) -> None:
    lines = "".join(f"line {n} of a long file that a generator wrote\n" for n in range(40_000))
    (root / "long.txt").write_text(f"GITHUB_TOKEN={TOKEN}\n{lines}")
    model = script([{"calls": [call("delete", path="long.txt"), call("read", path="a.cfg")]}, "done"])
    async with opened(root, model) as session:
        events = await turn(session)
        assert TOKEN not in everything(session)
    [edit] = data(events, "edit")
    assert edit["removed"] == 40_001 and edit["before"]["size"] == len(lines) + len(TOKEN) + 14
    diff = edit["diff"]
    assert PATTERN.search(diff.splitlines()[3])
    assert len(diff) < DIFF_LIMIT + 100
    assert diff.splitlines()[-1].endswith("more characters left out")
    assert diff.splitlines()[-2].endswith("a generator wrote")
    kinds = [event.type for event in events]
    assert kinds.index("edit") < kinds.index("tool.result")
