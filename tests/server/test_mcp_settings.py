"""`[mcp.NAME]`: whose servers start, with what, and what a workspace may say of them."""

from pathlib import Path

import pytest

from server import places
from server.configuration import SettingsError
from server.settings import Settings


def load(text: str, environ: dict[str, str] | None = None, workspace: Path | None = None) -> Settings:
    file = places.config_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return Settings.load({}, environ or {}, workspace)


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETUDE_CONFIG", str(tmp_path / "config"))


def test_secrets_come_from_the_environment() -> None:
    settings = load(
        '[mcp.one]\ncommand = "npx"\nargs = ["-y", "x"]\nenv = { A = "1" }\nenv_from = ["TOKEN", "GONE"]\n'
        '[mcp.two]\nurl = "https://two.example/mcp"\nheaders = { X-Team = "t" }\ntoken_env = "TOKEN"\n'
    )
    one = settings.mcp["one"].spec("one", {"TOKEN": "s", "OTHER": "o"})
    assert (one.command, one.args, dict(one.env)) == ("npx", ("-y", "x"), {"TOKEN": "s", "A": "1"})
    two = settings.mcp["two"].spec("two", {"TOKEN": "s"})
    assert dict(two.headers) == {"X-Team": "t", "Authorization": "Bearer s"}


def test_the_environment_configures_servers_too() -> None:
    settings = load("", {"ETUDE_MCP__ONE__COMMAND": "tool"})
    assert settings.mcp["one"].command == "tool"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[mcp.one]\ncommand = "a"\nurl = "http://a"', "either a command or a url"),
        ("[mcp.one]\nargs = []", "either a command or a url"),
        ('[mcp.one]\nurl = "ftp://a"', "http or https"),
        ('[mcp.one]\ncomand = "a"', "did you mean 'mcp.one.command'"),
    ],
)
def test_mistakes_are_named(text: str, why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        load(text)


def test_a_workspace_only_proposes_and_gets_no_secrets(tmp_path: Path) -> None:
    workspace = tmp_path / "repo"
    workspace.mkdir()
    (workspace / "etude.toml").write_text(
        '[mcp.mine]\ncommand = "other"\n'
        '[mcp.theirs]\ncommand = "make"\nenv_from = ["TOKEN"]\ntoken_env = "TOKEN"\n'
    )
    settings = load('[mcp.mine]\ncommand = "tool"', {"TOKEN": "s"}, workspace)
    assert settings.mcp["mine"].command == "tool" and list(settings.mcp) == ["mine"]
    assert list(settings.proposed) == ["theirs"], "one of the same name is the user's"
    assert dict(settings.proposed["theirs"].spec("theirs", {"TOKEN": "s"}).env) == {}
    (workspace / "etude.toml").write_text('[mcp.theirs]\nurl = "file:///x"')
    with pytest.raises(SettingsError, match="http or https"):
        load("", {}, workspace)
