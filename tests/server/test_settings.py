"""Settings: who may say what, who wins, and how mistakes are named."""

from pathlib import Path

import pytest

from server.configuration import SettingsError, known_keys
from server.settings import Settings


@pytest.fixture
def user_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with an empty home; the returned path is their configuration file."""
    monkeypatch.setenv("ETUDE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("ETUDE_CALLER", str(tmp_path))
    file = tmp_path / "config" / "etude.toml"
    file.parent.mkdir()
    monkeypatch.setenv("ETUDE_CONFIG", str(file))
    return file


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def load(
    flags: dict[str, object] | None = None,
    environ: dict[str, str] | None = None,
    workspace: Path | None = None,
):
    return Settings.load(flags or {}, environ or {}, workspace)


def test_defaults_need_no_file(user_file: Path, tmp_path: Path) -> None:
    settings = load()
    assert settings.agent.mode == "ask"
    assert (settings.server.host, settings.server.port) == ("127.0.0.1", 4747)
    assert settings.privacy.consent == "metrics"
    assert settings.store.url == f"sqlite:///{tmp_path / 'data' / 'etude.db'}"
    assert settings.sources == {}


def test_each_source_beats_the_one_below(user_file: Path, workspace: Path) -> None:
    user_file.write_text(
        '[agent]\nmode = "auto"\nmax_steps = 90\n[sandbox]\npids = 400\n[server]\nport = 1\n'
    )
    (workspace / "etude.toml").write_text('[agent]\nmode = "ask"\n[sandbox]\npids = 300\n')
    settings = load({"agent.mode": "full"}, {"ETUDE_SERVER__PORT": "2"}, workspace)
    assert settings.agent.mode == "full"
    assert settings.server.port == 2
    assert settings.sandbox.pids == 300
    assert settings.agent.max_steps == 90
    assert settings.sources == {
        "agent.mode": "command line",
        "agent.max_steps": str(user_file),
        "sandbox.pids": str(workspace / "etude.toml"),
        "server.port": "environment ETUDE_SERVER__PORT",
    }
    assert settings.warnings == []


def test_named_variables(user_file: Path) -> None:
    settings = load(environ={"ETUDE_DB": "postgresql://db/etude", "ETUDE_MODEL": "local", "ETUDE_TOKEN": "t"})
    assert settings.store.url == "postgresql://db/etude"
    assert settings.agent.model == "local"
    assert load({"agent.model": "openai:x"}, {"ETUDE_MODEL": "local"}).agent.model == "openai:x"
    assert load(environ={"ETUDE_MODEL": ""}).agent.model is None


def test_models_and_lists_from_the_environment(user_file: Path) -> None:
    settings = load(
        environ={
            "ETUDE_MODELS__BIG__MODEL": "gpt",
            "ETUDE_MODELS__BIG__PRICE__INPUT": "1.5",
            "ETUDE_SERVER__ALLOWED_ORIGINS": "https://a.example, https://b.example",
        }
    )
    price = settings.models["big"].price
    assert price is not None
    assert price.input == 1.5
    assert settings.server.allowed_origins == ("https://a.example", "https://b.example")


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ('[agent]\nmode = "full"', "agent.mode"),
        ("[agent]\nmax_steps = 100000", "agent.max_steps"),
        ('[agent]\nmodel = "openai:theirs"', "agent.model"),
        ("[sandbox]\nnetwork = true", "sandbox.network"),
        ('[sandbox]\ntier = "none"', "sandbox.tier"),
        ('[sandbox]\nread = ["/etc"]', "sandbox.read"),
        ("[sandbox]\nmemory_mb = 999999", "sandbox.memory_mb"),
        ('[server]\nhost = "0.0.0.0"', "server.host"),
        ('[server]\nallowed_origins = ["https://evil.example"]', "server.allowed_origins"),
        ('[store]\nurl = "postgresql://evil.example/x"', "store.url"),
        ('[models.local]\nbase_url = "https://evil.example/v1"', "models.local.base_url"),
        ('[privacy]\nconsent = "publish"', "privacy.consent"),
        ('[judge]\nmodel = "openai:theirs"', "judge.model"),
    ],
)
def test_a_workspace_cannot_widen(user_file: Path, workspace: Path, written: str, key: str) -> None:
    (workspace / "etude.toml").write_text(written + "\n")
    settings = load(workspace=workspace)
    assert settings.model_dump() == load().model_dump()
    assert len(settings.warnings) == 1
    assert f"{workspace / 'etude.toml'}: {key} " in settings.warnings[0]
    assert "ignored" in settings.warnings[0]


def test_a_workspace_may_narrow(user_file: Path, workspace: Path) -> None:
    user_file.write_text('[sandbox]\nnetwork = true\nread = ["/opt/a", "/opt/b"]\n')
    (workspace / "etude.toml").write_text(
        '[agent]\nmode = "plan"\nmax_steps = 5\n'
        '[sandbox]\nnetwork = false\ntier = "bubblewrap"\nread = ["/opt/a"]\n'
    )
    settings = load().for_workspace(workspace)
    assert (settings.agent.mode, settings.agent.max_steps) == ("plan", 5)
    assert (settings.sandbox.network, settings.sandbox.tier) == (False, "bubblewrap")
    assert settings.sandbox.read == (Path("/opt/a"),)
    assert settings.warnings == []


@pytest.mark.parametrize(
    ("users", "theirs", "holds"),
    [
        ("true", '["pypi.org"]', ("pypi.org",)),
        ("true", "true", True),
        ('["pypi.org", "*.npmjs.org"]', '["registry.npmjs.org:443"]', ("registry.npmjs.org:443",)),
        ('["pypi.org"]', "false", False),
        ('["pypi.org"]', "[]", False),
        ('["pypi.org"]', "true", ("pypi.org",)),
        ('["pypi.org"]', '["pypi.org", "evil.example"]', ("pypi.org",)),
        ('["pypi.org"]', '["*.pypi.org"]', ("pypi.org",)),
        ("false", '["pypi.org"]', False),
    ],
)
def test_a_list_of_hosts_lies_between_no_network_and_all_of_it(
    user_file: Path, workspace: Path, users: str, theirs: str, holds: object
) -> None:
    user_file.write_text(f"[sandbox]\nnetwork = {users}\n")
    (workspace / "etude.toml").write_text(f"[sandbox]\nnetwork = {theirs}\n")
    assert load().for_workspace(workspace).sandbox.network == holds


@pytest.mark.parametrize(
    ("text", "holds"),
    [("true", True), ("False", False), ("pypi.org, *.npmjs.org", ("pypi.org", "*.npmjs.org"))],
)
def test_hosts_come_from_the_environment_too(user_file: Path, text: str, holds: object) -> None:
    assert load(environ={"ETUDE_SANDBOX__NETWORK": text}).sandbox.network == holds


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ('[sandbox]\nnetwork = ["https://pypi.org"]', "'https://pypi.org' is not a host"),
        ("[agent]\nmoed = 'ask'", "'agent.mode'"),
        ("[agnet]\nmode = 'ask'", "'agent.mode'"),
        ("[models.big]\nmodle = 'x'", "'models.big.model'"),
        ("[models.big.price]\ninputs = 1", "'models.big.price.input'"),
        ("[agent]\nmode = 'yolo'", "'plan', 'ask', 'auto' or 'full'"),
        ("[server]\nport = 70000", "65535"),
        ("[sandbox]\nmemory_mb = 'lots'", "integer"),
        ("[agent\n", "not valid TOML"),
        ("[models.'gpt-5.1']\nmodel = 'x'", "no '.'"),
    ],
)
def test_mistakes_name_the_file_and_the_remedy(user_file: Path, written: str, says: str) -> None:
    user_file.write_text(written + "\n")
    with pytest.raises(SettingsError) as caught:
        load()
    assert str(user_file) in str(caught.value)
    assert says in str(caught.value)
    assert caught.value.code == 2


def test_a_mistake_that_would_narrow_is_not_ignored(user_file: Path, workspace: Path) -> None:
    (workspace / "etude.toml").write_text("[agent]\nmode = 'paln'\n")
    with pytest.raises(SettingsError, match=r"etude\.toml: agent\.mode = 'paln'"):
        load(workspace=workspace)


@pytest.mark.parametrize("variable", ["ETUDE_AGENT__MOED", "ETUDE_NOWHERE__MODE"])
def test_unknown_variables_are_named(user_file: Path, variable: str) -> None:
    with pytest.raises(SettingsError, match=rf"environment {variable}.*'agent\.mode'"):
        load(environ={variable: "ask"})


def test_a_pipe_or_a_huge_file_is_no_configuration(user_file: Path, workspace: Path) -> None:
    import os

    os.mkfifo(workspace / "etude.toml")
    with pytest.raises(SettingsError, match="not a regular file"):
        load(workspace=workspace)
    (workspace / "etude.toml").unlink()
    (workspace / "etude.toml").write_bytes(b"#" * 300_000)
    with pytest.raises(SettingsError, match="larger than"):
        load(workspace=workspace)
    (workspace / "etude.toml").write_bytes(b'[agent]\nmode = "\xff"\n')
    with pytest.raises(SettingsError, match="UTF-8"):
        load(workspace=workspace)


def test_relative_paths_mean_where_they_were_written(user_file: Path, tmp_path: Path) -> None:
    user_file.write_text('[sandbox]\nread = ["tools"]\n[store]\nurl = "sqlite:///mine.db"\n')
    assert load().sandbox.read == (user_file.parent / "tools",)
    assert load().store.url == f"sqlite:///{user_file.parent / 'mine.db'}"
    assert load({"store.url": "here.db"}).store.url == f"sqlite:///{tmp_path / 'here.db'}"


def test_every_key_of_the_documentation_exists() -> None:
    """`docs/configuration.md` lists each key, and no other."""
    import re

    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `([a-zA-Z_]+\.[a-zA-Z_.]+)` \|", page, flags=re.MULTILINE))
    assert listed == set(known_keys())


@pytest.mark.parametrize(
    ("mine", "theirs", "holds"),
    [
        ("auto", "bubblewrap", "bubblewrap"),
        ("auto", "landlock", "auto"),
        ("auto", "none", "auto"),
        ("landlock", "bubblewrap", "bubblewrap"),
        ("landlock", "auto", "landlock"),
        ("landlock", "none", "landlock"),
        ("bubblewrap", "landlock", "bubblewrap"),
        ("none", "landlock", "landlock"),
        ("none", "auto", "auto"),
    ],
)
def test_a_workspace_may_only_demand_more_confinement(
    user_file: Path, workspace: Path, mine: str, theirs: str, holds: str
) -> None:
    user_file.write_text(f'[sandbox]\ntier = "{mine}"\n')
    (workspace / "etude.toml").write_text(f'[sandbox]\ntier = "{theirs}"\n')
    settings = load(workspace=workspace)
    assert settings.sandbox.tier == holds
    assert bool(settings.warnings) == (holds != theirs)
