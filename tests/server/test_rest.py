"""REST, health, metrics and the page: what they give, and to whom."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent.events import Draft
from server import app as app_module
from tests.support.inprocess import starting

GO = [{"type": "text", "text": "Fix the greeting."}]
SCRIPT = [{"text": "I look.", "calls": [{"name": "read", "arguments": {"path": "missing.py"}}]}, "Done."]


@pytest.fixture
async def talked(tmp_path: Path) -> AsyncIterator[tuple[Any, str, httpx.AsyncClient]]:
    """A server with one conversation, its session, and an HTTP client with the token."""
    async with starting(tmp_path) as start:
        server, _ = await start(SCRIPT)
        async with server.client() as client:
            session = await client.new_session(server.workspace)
            await client.call("session/prompt", sessionId=session, prompt=GO)
        headers = {"Authorization": f"Bearer {server.token}"}
        async with httpx.AsyncClient(base_url=server.url, headers=headers, trust_env=False) as http:
            yield server, session, http


async def test_the_log_is_read_in_pages(talked: Any) -> None:
    server, session, http = talked
    whole = (await http.get(f"/api/sessions/{session}/events", params={"limit": 10000})).json()
    events = await server.store.all_events(session)
    assert whole["events"] == [event.model_dump() for event in events]
    assert whole["next"] is None
    paged, after = [], 0
    while after is not None:
        page = (await http.get(f"/api/sessions/{session}/events?after={after}&limit=3")).json()
        paged += page["events"]
        after = page["next"]
    assert paged == whole["events"]
    for query in ("after=-1", "limit=0", "limit=10001", "after=x"):
        assert (await http.get(f"/api/sessions/{session}/events?{query}")).status_code == 422


async def test_an_error_does_not_repeat_a_secret(talked: Any) -> None:
    _, _, http = talked
    secret = "ghp_" + "aB3dE5fG7hI9jK1lM2nO4pQ6rS8tU0vW2xY4"
    answer = await http.delete(f"/api/rules/{secret}")
    assert answer.status_code == 404
    assert secret not in answer.text
    assert "[secret:" in answer.json()["detail"]
    assert (await http.get(f"/nowhere/{secret}")).json()["detail"] == "Not Found"


async def test_a_session_is_listed_shown_and_deleted(talked: Any) -> None:
    server, session, http = talked
    [row] = (await http.get("/api/sessions")).json()["sessions"]
    assert row == (await http.get(f"/api/sessions/{session}")).json()
    assert (row["id"], row["workspace"]) == (session, str(server.workspace))
    assert (row["title"], row["turn"], row["running"]) == ("Fix the greeting.", 1, False)
    assert (await http.get("/api/sessions?workspace=/elsewhere")).json()["sessions"] == []
    assert len((await http.get("/api/sessions?query=greet")).json()["sessions"]) == 1
    assert (await http.delete(f"/api/sessions/{session}")).status_code == 204
    for path in (f"/api/sessions/{session}", f"/api/sessions/{session}/events"):
        assert (await http.get(path)).status_code == 404
    assert (await http.delete(f"/api/sessions/{session}")).status_code == 404


async def test_a_list_goes_on_where_it_ended_whatever_happens_meanwhile(talked: Any) -> None:
    server, session, http = talked
    async with server.client() as client:
        newer = [await client.new_session(server.workspace) for _ in range(2)]
    first = (await http.get("/api/sessions?limit=2")).json()
    assert [row["id"] for row in first["sessions"]] == [newer[1], newer[0]]
    log = await server.store.lease(newer[0])
    await log.submit(Draft(type="feedback", data={"kind": "comment"}))
    await log.release()
    second = (await http.get("/api/sessions", params={"limit": 2, "before": first["next"]})).json()
    assert ([row["id"] for row in second["sessions"]], second["next"]) == ([session], None)


async def test_a_generation_and_its_blobs_can_be_read(talked: Any) -> None:
    server, session, http = talked
    events = await server.store.all_events(session)
    id = next(event.data["id"] for event in events if event.type == "generation")
    generation = (await http.get(f"/api/generations/{id}")).json()
    assert "Fix the greeting." in str(generation)
    node = next(event.data["prompt"]["node"] for event in events if event.type == "generation")
    blob = await http.get(f"/api/blobs/{node}")
    assert blob.status_code == 200
    assert blob.headers["content-disposition"] == "attachment"
    assert (await http.get("/api/blobs/" + "0" * 40)).status_code == 404
    assert (await http.get("/api/generations/none")).status_code == 404


async def test_other_users_see_nothing_of_it(talked: Any) -> None:
    server, session, http = talked
    events = await server.store.all_events(session)
    id = next(event.data["id"] for event in events if event.type == "generation")
    http.headers["Authorization"] = f"Bearer {server.app.state.tokens.add('alice')}"
    assert (await http.get("/api/sessions")).json()["sessions"] == []
    for path in (
        f"/api/sessions/{session}",
        f"/api/sessions/{session}/events",
        f"/api/generations/{id}",
    ):
        assert (await http.get(path)).status_code == 404
    assert (await http.delete(f"/api/sessions/{session}")).status_code == 404
    assert (await http.get("/api/server")).json()["user"] == "alice"


async def test_everything_but_health_and_the_page_needs_a_token(talked: Any) -> None:
    server, session, http = talked
    description = (await http.get("/openapi.json")).json()
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as stranger:
        for path in ("/healthz", "/readyz", "/", "/openapi.json"):
            assert (await stranger.get(path)).status_code == 200, path
        asked = 0
        for path, operations in description["paths"].items():
            for verb in operations:
                if path in ("/healthz", "/readyz", "/api/token"):
                    continue
                answer = await stranger.request(verb, path.replace("{session_id}", session))
                assert answer.status_code == 401, path
                assert answer.headers["www-authenticate"] == "Bearer"
                asked += 1
        assert asked >= 8


async def test_a_code_is_traded_once(talked: Any) -> None:
    server, _, http = talked
    code = (await http.post("/api/code")).json()["code"]
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as page:
        traded = await page.post("/api/token", json={"code": code})
        assert traded.json() == {"token": server.token}
        assert (await page.post("/api/token", json={"code": code})).status_code == 401
        assert (await page.post("/api/token", json={"code": "x" * 201})).status_code == 422
        assert (await page.post("/api/token", content=b"{")).status_code == 422


@pytest.mark.case("agent-28")
async def test_a_foreign_origin_or_host_is_refused_everywhere(talked: Any) -> None:
    _, _, http = talked
    for path in ("/", "/healthz", "/api/server", "/metrics", "/acp"):
        assert (await http.get(path, headers={"Origin": "http://evil.example"})).status_code == 403
        assert (await http.get(path, headers={"Host": "evil.example"})).status_code == 403
    refused = await http.post("/api/token", json={"code": "x"}, headers={"Origin": "http://evil.example"})
    assert refused.status_code == 403


async def test_answers_carry_security_headers(talked: Any) -> None:
    _, _, http = talked
    for path in ("/", "/api/server", "/missing"):
        headers = (await http.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "'unsafe-inline'" not in headers["content-security-policy"]
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers


async def test_the_page_says_what_to_do_where_it_is_not_built(
    talked: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, http = talked
    monkeypatch.setattr(app_module, "STATIC", tmp_path)
    assert "not built" in (await http.get("/")).text
    (tmp_path / "index.html").write_text("<!doctype html><title>Etude chat</title>")
    assert "Etude chat" in (await http.get("/")).text


async def test_metrics_count_what_happened(talked: Any) -> None:
    _, _, http = talked
    text = (await http.get("/metrics")).text
    assert 'etude_turns_total{reason="end_turn"} 1.0' in text
    assert 'etude_tool_calls_total{tool="read"} 1.0' in text
    assert 'etude_tool_errors_total{class="invalid_arguments",model="scripted",tool="read"} 1.0' in text
    assert 'class="unknown"' not in text
    assert "etude_commit_seconds_bucket" in text
    assert "etude_deltas_total" in text


async def test_the_server_says_what_it_serves(talked: Any) -> None:
    server, _, http = talked
    answer = (await http.get("/api/server")).json()
    assert answer["workspaces"] == [str(server.workspace)]
    assert answer["models"] == ["scripted"]
    assert (answer["model"], answer["mode"], answer["user"]) == ("scripted", "full", "local")


async def test_readiness_is_the_databases(talked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server, _, http = talked
    assert (await http.get("/readyz")).json() == {"status": "ready"}

    async def broken(**_: Any) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(server.store, "sessions", broken)
    answer = await http.get("/readyz")
    assert answer.status_code == 503
    assert "disk is gone" in answer.json()["error"]
    assert (await http.get("/healthz")).status_code == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/sessions?before=99999999999999999999.x", 404),
        (f"/api/sessions?before={'9' * 5000}.x", 404),
        ("/api/sessions?before=nope", 404),
        ("/api/sessions/SESSION/events?after=99999999999999999999", 422),
        ("/api/sessions/SESSION/events?after=9223372036854775807", 200),
    ],
)
async def test_numbers_beyond_the_databases_are_no_defect(talked: Any, path: str, status: int) -> None:
    _, session, http = talked
    answer = await http.get(path.replace("SESSION", session))
    assert (answer.status_code, "detail" in answer.json()) == (status, status != 200)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"code":NaN}', 422),
        (b'{"code":1e999}', 422),
        (b'{"code":"\\ud800"}', 422),
        (b'{"code":"' + b"x" * 3000 + b'"}', 422),
        (b"\xff\xfe", 422),
        (b'{"code":"' + b"x" * 2_000_000 + b'"}', 413),
    ],
    ids=["NaN", "infinity", "surrogate", "long", "no text", "huge"],
)
async def test_a_hostile_body_is_refused_and_not_repeated(talked: Any, body: bytes, status: int) -> None:
    _, _, http = talked
    answer = await http.post("/api/token", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status
    assert len(answer.content) < 1000
    assert answer.json()["detail"]
