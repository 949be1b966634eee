"""Who may come in."""

import os
from pathlib import Path

import pytest

from server import auth
from server.auth import Codes, Gate, TokenError, Tokens, bearer, own_token


def headers(host: str | None = "127.0.0.1:4747", origin: str | None = None) -> list[tuple[bytes, bytes]]:
    given = {"host": host, "origin": origin}
    return [(name.encode(), value.encode()) for name, value in given.items() if value is not None]


@pytest.mark.case("agent-28")
@pytest.mark.parametrize(
    "host", ["127.0.0.1:4747", "localhost:4747", "LOCALHOST", "[::1]:4747", "127.0.0.2", "box.example:4747"]
)
def test_loopback_and_configured_names_are_let_in(host: str) -> None:
    assert Gate(hosts=["box.example"]).refuse(headers(host)) is None


@pytest.mark.case("agent-28")
@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:4747",
        "127.0.0.1@evil.example",
        "127.0.0.1:4747:80",
        "0.0.0.0",
        "10.0.0.1",
        "local host",
    ],
)
def test_a_name_that_was_rebound_to_us_is_refused(host: str | None) -> None:
    assert Gate().refuse(headers(host)) is not None


def test_two_hosts_are_refused() -> None:
    assert Gate().refuse(headers() + headers("evil.example")) is not None


@pytest.mark.case("agent-28")
@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        (None, True),
        ("http://127.0.0.1:4747", True),
        ("vscode-webview://0a1b2c3d", True),
        ("https://lab.example", True),
        ("http://evil.example", False),
        ("null", False),
        ("http://127.0.0.1:4748", False),
        ("http://localhost:4747", False),
        ("http://127.0.0.1:4747.evil.example", False),
        ("vscode-webview://a/b", False),
        ("file://", False),
        ("https://lab.example.evil", False),
    ],
)
def test_only_our_own_pages_and_configured_ones_may_connect(origin: str | None, allowed: bool) -> None:
    gate = Gate(origins=["https://lab.example/"])
    assert (gate.refuse(headers(origin=origin)) is None) is allowed


@pytest.mark.parametrize(
    ("value", "token"),
    [("Bearer abc", "abc"), ("bearer  abc ", "abc"), ("Basic abc", None), ("Bearer", None), ("abc", None)],
)
def test_bearer(value: str, token: str | None) -> None:
    assert bearer([(b"authorization", value.encode())]) == token


def test_named_tokens_are_stored_as_hashes_readable_by_their_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "data" / "tokens.json"
    tokens = Tokens(path, "own-token")
    token = tokens.add("alice")
    assert token not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert tokens.verify(token) == "alice"
    assert tokens.verify("own-token") == auth.LOCAL_USER
    assert tokens.verify("") is None
    assert tokens.verify(token + "x") is None


def test_a_running_server_sees_tokens_added_and_removed_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    server, command = Tokens.load(path, "own"), Tokens(path)
    token = command.add("bob", "robert")
    assert server.verify(token) == "robert"
    assert [item.name for item in server.list()] == ["bob"]
    command.remove("bob")
    assert server.verify(token) is None
    path.unlink()
    assert server.verify("own") == auth.LOCAL_USER


@pytest.mark.parametrize("name", ["", "-x", "a b", "a/b", "x" * 65])
def test_odd_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(TokenError):
        Tokens(tmp_path / "tokens.json").add(name)


def test_a_name_is_given_once_and_must_exist_to_be_removed(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    tokens.add("alice")
    with pytest.raises(TokenError, match="already"):
        tokens.add("alice")
    with pytest.raises(TokenError, match="no token"):
        tokens.remove("bob")


def test_a_broken_token_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_text("{")
    with pytest.raises(TokenError, match=r"tokens\.json"):
        Tokens.load(path)
    assert os.listdir(tmp_path) == ["tokens.json"]


def test_a_code_works_once_and_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(auth.time, "monotonic", lambda: now[0])
    codes = Codes()
    code = codes.mint("token")
    assert codes.trade("wrong") is None
    assert codes.trade(code) == "token"
    assert codes.trade(code) is None
    old = codes.mint("token")
    now[0] += auth.CODE_LIFE_S + 1
    assert codes.trade(old) is None


def test_codes_are_bounded() -> None:
    codes = Codes()
    made = [codes.mint("token") for _ in range(auth.MAX_CODES + 5)]
    assert codes.trade(made[0]) is None
    assert codes.trade(made[-1]) == "token"


def test_the_local_token_is_made_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "data" / "token"
    token = own_token(path)
    assert len(token) >= 32
    assert own_token(path) == token
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("\n")
    assert own_token(path) not in ("", token)
