"""Prompts: how each is accepted, answered, queued, steered, cancelled and recognised again."""

import asyncio
from typing import Any

import pytest

from tests.support.acp import AcpClient, RpcFailure
from tests.support.received import Received


def text(words: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": words}]


def marked(id: str) -> dict[str, Any]:
    return {"etude": {"clientMessageId": id}}


def read(path: str = "hello.py") -> dict[str, Any]:
    return {"name": "read", "arguments": {"path": path}}


async def prompt(client: AcpClient, session: str, words: str = "go", **params: Any) -> Any:
    return await client.call("session/prompt", sessionId=session, prompt=text(words), **params)


async def talking(client: AcpClient) -> None:
    await client.until(lambda c: c.updates("agent_message_chunk"))


async def prompts_of(server: Any, session: str) -> list[str]:
    events = await server.store.all_events(session)
    return [event.data["text"] for event in events if event.type == "prompt"]


async def test_a_turn_answers_with_its_stop_reason_and_usage(serve: Any) -> None:
    server, _ = await serve(["Hello."])
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        result = await prompt(client, session)
        assert result["stopReason"] == "end_turn"
        assert result["usage"]["totalTokens"] == (
            result["usage"]["inputTokens"] + result["usage"]["outputTokens"]
        )
        received = Received.of(client, session)
        assert list(received.texts.values()) == ["Hello."]
        assert received.last == (await server.store.session(session)).last_seq


async def test_a_limit_of_steps_is_a_stop_reason(serve: Any) -> None:
    server, _ = await serve(
        [{"calls": [read()]}, {"calls": [read("./hello.py")]}], flags={"agent.max_steps": 2}
    )
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        assert (await prompt(client, session))["stopReason"] == "max_turn_requests"


async def test_a_failing_model_is_a_clear_error_and_the_next_prompt_works(serve: Any) -> None:
    server, _ = await serve([{"status": 400, "text": "no such parameter"}, "Better."])
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        with pytest.raises(RpcFailure) as failure:
            await prompt(client, session)
        assert failure.value.error["data"]["reason"] == "model_error"
        assert len(failure.value.error["message"]) > 20
        assert (await prompt(client, session))["stopReason"] == "end_turn"


@pytest.mark.case("agent-30")
async def test_a_model_that_cannot_be_opened_leaves_the_history_readable_and_another_can_go_on(
    serve: Any,
) -> None:
    server, _ = await serve(["Here."], flags={"agent.model": "gone"})
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        with pytest.raises(RpcFailure, match="gone"):
            await prompt(client, session)
        loaded = await client.call(
            "session/load", sessionId=session, cwd=str(server.workspace), mcpServers=[]
        )
        assert "modes" in loaded
        with pytest.raises(RpcFailure, match="There is no model"):
            await client.call("session/set_config_option", sessionId=session, configId="model", value="none")
        changed = await client.call(
            "session/set_config_option", sessionId=session, configId="model", value="scripted"
        )
        assert [option["currentValue"] for option in changed["configOptions"]] == ["full", "scripted"]
        assert (await prompt(client, session))["stopReason"] == "end_turn"


@pytest.mark.case("agent-3")
async def test_prompts_during_a_turn_queue_and_each_is_answered_when_its_own_turn_ends(serve: Any) -> None:
    slow = {"text": "word " * 40, "delay_ms": 5}
    server, _ = await serve([slow, "two", "three", "four"])
    async with server.client() as one, server.client() as two:
        session = await one.new_session(server.workspace)
        await two.call("_etude/attach", sessionId=session, afterSeq=0)
        first = asyncio.create_task(prompt(one, session, "first", _meta=marked("m1")))
        await talking(one)
        rest = [
            asyncio.create_task(prompt(client, session, words, _meta=marked(id)))
            for client, words, id in ((one, "second", "m2"), (two, "third", "m3"), (one, "fourth", "m4"))
        ]
        await first
        assert not rest[2].done()
        results = await asyncio.gather(*rest)
        assert [result["stopReason"] for result in results] == ["end_turn"] * 3
        accepted = one.of("_etude/accepted") + two.of("_etude/accepted")
        assert {item["clientMessageId"]: item["as"] for item in accepted} == {
            "m1": "turn",
            "m2": "queue",
            "m3": "queue",
            "m4": "queue",
        }
        order = await prompts_of(server, session)
        assert order[0] == "first"
        assert sorted(order[1:]) == ["fourth", "second", "third"]
        assert order.index("second") < order.index("fourth")
        assert Received.of(one, session).kinds == Received.of(two, session).kinds
        queued = {item["seq"] for item in accepted if item["as"] == "queue"}
        assert queued == {
            seq for seq, kinds in Received.of(one, session).kinds.items() if kinds == ["queued"]
        }


@pytest.mark.case("agent-3")
async def test_two_clients_that_send_at_once_are_both_accepted_exactly_once(serve: Any) -> None:
    server, model = await serve(["one", "two", "three", "four", "five", "six"])
    async with server.client() as one, server.client() as two:
        session = await one.new_session(server.workspace)
        await two.call("_etude/attach", sessionId=session, afterSeq=0)
        sent = [
            prompt(client, session, f"{name}{k}", _meta=marked(f"{name}{k}"))
            for k in range(3)
            for client, name in ((one, "a"), (two, "b"))
        ]
        await asyncio.gather(*sent)
        accepted = one.of("_etude/accepted") + two.of("_etude/accepted")
        assert sorted(item["clientMessageId"] for item in accepted) == ["a0", "a1", "a2", "b0", "b1", "b2"]
        assert len({item["seq"] for item in accepted}) == 6
        assert sorted(await prompts_of(server, session)) == ["a0", "a1", "a2", "b0", "b1", "b2"]
        assert len(model.requests) == 6


@pytest.mark.case("agent-3")
async def test_a_cancel_of_an_idle_session_does_not_swallow_the_next_prompt(serve: Any) -> None:
    server, _ = await serve(["one", "two"])
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        await client.notify("session/cancel", sessionId=session)
        assert (await prompt(client, session))["stopReason"] == "end_turn"
        await client.notify("session/cancel", sessionId=session)
        await client.notify("session/cancel", sessionId="unknown")
        assert (await prompt(client, session))["stopReason"] == "end_turn"


async def test_a_cancel_stops_the_model_and_the_answer_is_cancelled(serve: Any) -> None:
    server, model = await serve([{"text": "word " * 2000, "delay_ms": 5}, "again"])
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        turn = asyncio.create_task(prompt(client, session))
        await talking(client)
        await client.notify("session/cancel", sessionId=session)
        assert (await asyncio.wait_for(turn, 5))["stopReason"] == "cancelled"
        await asyncio.to_thread(model.wait, lambda m: m.cut == 1)
        assert (await prompt(client, session))["stopReason"] == "end_turn"


async def test_a_cancel_right_behind_a_prompt_cancels_it(serve: Any) -> None:
    server, _ = await serve(["never", "again"])
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        id = await client.send("session/prompt", sessionId=session, prompt=text("stop this"))
        await client.notify("session/cancel", sessionId=session)
        answer = await client.until(
            lambda c: [f.message for f in c.frames if f.message.get("id") == id and "method" not in f.message]
        )
        assert answer[0]["result"]["stopReason"] == "cancelled"
        assert await prompts_of(server, session) == ["stop this"]
        assert (await prompt(client, session))["stopReason"] == "end_turn"


async def test_a_cancel_keeps_what_is_queued(serve: Any) -> None:
    server, _ = await serve([{"text": "word " * 2000, "delay_ms": 5}, "two"])
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        first = asyncio.create_task(prompt(client, session, "first"))
        await talking(client)
        second = asyncio.create_task(prompt(client, session, "second", _meta=marked("m2")))
        await client.until(lambda c: any(item["as"] == "queue" for item in c.of("_etude/accepted")))
        await client.notify("session/cancel", sessionId=session)
        assert (await first)["stopReason"] == "cancelled"
        assert (await second)["stopReason"] == "end_turn"


async def test_withdrawing_the_request_cancels_its_turn(serve: Any) -> None:
    server, _ = await serve([{"text": "word " * 2000, "delay_ms": 5}])
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        id = await client.send("session/prompt", sessionId=session, prompt=text("go"))
        await talking(client)
        await client.notify("$/cancel_request", requestId=id)
        await client.until(lambda c: any(e["type"] == "turn.ended" for e in c.of("_etude/event")))
        answer = next(f.message for f in client.frames if f.message.get("id") == id)
        assert answer["error"]["code"] == -32800
        assert (await server.store.all_events(session))[-1].data["reason"] == "cancelled"


async def test_a_repeated_message_id_gets_the_same_answer_and_does_nothing(serve: Any) -> None:
    server, model = await serve([{"text": "word " * 30, "delay_ms": 5}, "two"])
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        twins = [asyncio.create_task(prompt(client, session, "once", _meta=marked("m1"))) for _ in range(2)]
        results = await asyncio.gather(*twins)
        later = await prompt(client, session, "once", _meta=marked("m1"))
        assert [result["stopReason"] for result in (*results, later)] == ["end_turn"] * 3
        assert {(item["seq"], item["as"]) for item in client.of("_etude/accepted")} == {(2, "turn")}
        assert len(client.of("_etude/accepted")) == 3
        assert len(model.requests) == 1
        assert await prompts_of(server, session) == ["once"]


async def test_a_message_can_steer_the_running_turn(serve: Any) -> None:
    first = {"text": "word " * 60, "delay_ms": 5, "calls": [read()]}
    server, model = await serve([first, "I turned."])
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        turn = asyncio.create_task(prompt(client, session, "straight on"))
        await talking(client)
        answer = await client.call(
            "_etude/steer", sessionId=session, prompt=text("left!"), clientMessageId="s1", expectedTurn=1
        )
        assert answer["as"] == "steer"
        again = await client.call(
            "_etude/steer", sessionId=session, prompt=text("left!"), clientMessageId="s1"
        )
        assert again["seq"] == answer["seq"]
        await turn
        assert [params["seq"] for params in client.of("_etude/accepted") if params["as"] == "steer"] == [
            answer["seq"]
        ] * 2
        assert model.requests[1]["messages"][-1] == {"role": "user", "content": "left!"}
        assert Received.of(client, session).last == (await server.store.session(session)).last_seq


@pytest.mark.parametrize("running", [False, True])
async def test_steering_without_that_turn_is_a_prompt(serve: Any, running: bool) -> None:
    server, _ = await serve([{"text": "word " * 40, "delay_ms": 5}, "two"])
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        turn = asyncio.create_task(prompt(client, session)) if running else None
        if running:
            await talking(client)
        answer = await client.call(
            "_etude/steer", sessionId=session, prompt=text("more"), clientMessageId="s1", expectedTurn=7
        )
        assert answer["as"] == ("queue" if running else "turn")
        count = 2 if running else 1
        await client.until(
            lambda c: len([e for e in c.of("_etude/event") if e["type"] == "turn.ended"]) == count
        )
        if turn:
            await turn


async def test_a_prompt_waits_its_turn_even_if_its_client_is_gone(serve: Any) -> None:
    server, _ = await serve([{"text": "word " * 60, "delay_ms": 5}, "two"])
    async with server.client() as client, server.client() as other:
        session = await client.new_session(server.workspace)
        await other.call("_etude/attach", sessionId=session, afterSeq=0)
        await client.send("session/prompt", sessionId=session, prompt=text("first"))
        await talking(client)
        await client.send("session/prompt", sessionId=session, prompt=text("second"), _meta=marked("m2"))
        await client.until(lambda c: any(item["as"] == "queue" for item in c.of("_etude/accepted")))
        client.abort()
        await other.until(lambda c: len([e for e in c.of("_etude/event") if e["type"] == "turn.ended"]) == 2)
        assert await prompts_of(server, session) == ["first", "second"]


async def test_modes_and_feedback_are_in_the_log_and_shown_to_everyone(serve: Any) -> None:
    server, _ = await serve(["ok"])
    async with server.client() as client, server.client(etude=False) as plain:
        session = await client.new_session(server.workspace)
        await plain.call("session/resume", sessionId=session, cwd=str(server.workspace), mcpServers=[])
        await client.call("session/set_mode", sessionId=session, modeId="plan")
        await plain.until(lambda c: c.updates("current_mode_update"))
        assert plain.updates("current_mode_update")[0]["update"]["currentModeId"] == "plan"
        assert plain.updates("config_option_update")
        with pytest.raises(RpcFailure, match="modeId"):
            await client.call("session/set_mode", sessionId=session, modeId="wild")
        await prompt(client, session)
        answer = await client.call(
            "_etude/feedback", sessionId=session, target={"turn": 1}, kind="thumbs_up", comment="good"
        )
        events = await server.store.all_events(session)
        assert events[answer["seq"] - 1].data == {
            "target": {"turn": 1},
            "kind": "thumbs_up",
            "comment": "good",
            "user_id": "local",
        }
        assert Received.of(client, session).kinds[answer["seq"]] == ["feedback"]


@pytest.mark.parametrize(
    ("params", "word"),
    [
        ({"prompt": []}, "prompt"),
        ({"prompt": "hello"}, "prompt"),
        ({"prompt": [{"type": "film"}]}, "type"),
        ({"prompt": [{"type": "text"}]}, "text"),
        ({"prompt": [{"type": "text", "text": 5}]}, "text"),
        ({"prompt": [{"type": "resource"}]}, "resource"),
        ({}, "prompt"),
        ({"prompt": [{"type": "text", "text": "x"}], "_meta": 5}, "_meta"),
        (
            {"prompt": [{"type": "text", "text": "x"}], "_meta": {"etude": {"clientMessageId": 5}}},
            "clientMessageId",
        ),
    ],
)
async def test_absurd_prompts_are_refused_and_change_nothing(serve: Any, params: Any, word: str) -> None:
    server, model = await serve(["ok"])
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        with pytest.raises(RpcFailure, match=word) as failure:
            await client.call("session/prompt", sessionId=session, **params)
        assert failure.value.error["code"] == -32602
        assert (await server.store.session(session)).last_seq == 1
        assert not model.requests


async def test_unknown_sessions_are_named(serve: Any) -> None:
    server, _ = await serve()
    async with server.client() as client:
        for method, params in (
            ("session/prompt", {"prompt": text("x")}),
            ("session/load", {"cwd": "/", "mcpServers": []}),
            ("session/resume", {"cwd": "/", "mcpServers": []}),
            ("session/close", {}),
            ("session/delete", {}),
            ("session/set_mode", {"modeId": "ask"}),
            ("_etude/attach", {"afterSeq": 0}),
            ("_etude/steer", {"prompt": text("x")}),
        ):
            with pytest.raises(RpcFailure, match="Unknown session 01NOPE"):
                await client.call(method, sessionId="01NOPE", **params)


async def test_folders_that_must_not_be_workspaces_are_refused(
    serve: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, data = tmp_path / "home", tmp_path / "home" / "share" / "etude"
    data.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("ETUDE_DATA", str(data))
    server, _ = await serve()
    async with server.client() as client:
        for cwd, word in (
            ("/", "root"),
            (home, "home folder"),
            (home / "share", "lie apart"),
            (data, "lie apart"),
            (tmp_path / "missing", "no folder"),
            (tmp_path / "etude.db", "no folder"),
            ("/" + "a" * 300, "cannot be opened"),
            ("relative", "absolute"),
            ("", "cwd"),
        ):
            with pytest.raises(RpcFailure, match=word) as failure:
                await client.call("session/new", cwd=str(cwd), mcpServers=[])
            assert failure.value.error["code"] == -32602
        assert (await client.call("session/list"))["sessions"] == []


@pytest.mark.parametrize(
    "text",
    ["[agent\n", "[nope]\nx = 1\n", "[agent]\nmode = 5\n", "agent = 5\n", "x = " + "[" * 50_000, "\xff"],
    ids=["broken", "unknown", "wrong value", "no table", "nested", "no UTF-8"],
)
async def test_a_wrong_configuration_of_a_workspace_is_named_and_loses_nothing(serve: Any, text: str) -> None:
    server, _ = await serve(["ok"])
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        file = server.workspace / "etude.toml"
        file.write_text(text, "latin-1")
        with pytest.raises(RpcFailure, match=r"etude\.toml") as failure:
            await client.call("session/new", cwd=str(server.workspace), mcpServers=[])
        assert failure.value.error["code"] == -32602
        with pytest.raises(RpcFailure, match=r"etude\.toml"):
            await client.prompt(session, "hello")
        file.unlink()
        assert (await client.prompt(session, "hello"))["stopReason"] == "end_turn"


async def test_a_session_is_made_with_the_mode_and_model_asked_for(serve: Any) -> None:
    server, _ = await serve(["ok"])
    async with server.client() as client:
        made = await client.call(
            "session/new",
            cwd=str(server.workspace),
            mcpServers=[],
            _meta={"etude": {"mode": "plan", "model": "openai:other"}},
        )
        assert made["modes"]["currentModeId"] == "plan"
        assert made["configOptions"][1]["currentValue"] == "openai:other"
        with pytest.raises(RpcFailure, match="there is no mode"):
            await client.call(
                "session/new", cwd=str(server.workspace), mcpServers=[], _meta={"etude": {"mode": "x"}}
            )
        with pytest.raises(RpcFailure, match="no model 'other'"):
            await client.call(
                "session/new", cwd=str(server.workspace), mcpServers=[], _meta={"etude": {"model": "other"}}
            )


async def test_sessions_are_listed_closed_and_deleted(serve: Any) -> None:
    server, _ = await serve([{"text": "word " * 2000, "delay_ms": 5}, "ok"])
    async with server.client() as client:
        one = await client.new_session(server.workspace)
        two = await client.new_session(server.workspace)
        turn = asyncio.create_task(prompt(client, one, "Name the colours\nof the rainbow"))
        await talking(client)
        await client.call("session/close", sessionId=one)
        with pytest.raises(RpcFailure, match="closed"):
            await turn
        assert (await server.store.all_events(one))[-1].type == "turn.ended"
        assert one not in server.hub.sessions
        listed = (await client.call("session/list", cwd=str(server.workspace)))["sessions"]
        assert {item["sessionId"] for item in listed} == {one, two}
        assert (await client.call("session/list", cwd="/elsewhere"))["sessions"] == []
        await client.call("session/delete", sessionId=one)
        assert [item["sessionId"] for item in (await client.call("session/list"))["sessions"]] == [two]
        with pytest.raises(RpcFailure, match="cursor"):
            await client.call("session/list", cursor="nonsense")


async def test_a_patch_of_many_large_files_closes_no_client_that_reads(serve: Any) -> None:
    patch = "".join(f"*** Update File: f{n}.txt\n@@\n-line 9\n+other\n" for n in range(90))
    call = {"name": "apply_patch", "arguments": {"patch": f"*** Begin Patch\n{patch}*** End Patch\n"}}
    server, _ = await serve([{"calls": [call]}, "done"])
    for n in range(90):
        (server.workspace / f"f{n}.txt").write_text("".join(f"line {n}\n" for n in range(5000)))
    async with server.client() as client:
        session = await client.new_session(server.workspace)
        assert (await prompt(client, session))["stopReason"] == "end_turn"
        assert Received.of(client, session).last == (await server.store.session(session)).last_seq
        updates = [update["update"] for update in client.updates("tool_call_update")]
        shown = [update for update in updates if "other" in str(update.get("content"))]
        paths = {item["path"] for item in shown[-1]["content"]}
        assert len(paths) == 90, "the last update holds the diff of every file"
        assert shown[0]["content"][0]["newText"].count("\n") == 5000, "the first ones are shown whole"
        assert sum(len(str(update)) for update in shown) < 4 * len(str(shown[-1])) < 8_000_000
