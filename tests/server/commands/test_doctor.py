"""What `etude doctor` and `etude config show` say about the confinement of commands."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def ran(*words: str, tier: str, home: Path) -> list[dict[str, str]]:
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "ETUDE_DATA": str(home / "data"),
        "ETUDE_CONFIG": str(home / "etude.toml"),
        "ETUDE_SANDBOX__TIER": tier,
    }
    done = subprocess.run(
        [sys.executable, str(ROOT / "etude.py"), *words, "--json"],
        env=environment, capture_output=True, text=True, cwd=home, timeout=120,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("tier", ["auto", "landlock", "none"])
def test_the_tier_is_said_with_what_it_does_not_hold(tier: str, tmp_path: Path) -> None:
    found = next(one for one in ran("doctor", tier=tier, home=tmp_path) if one["name"] == "sandbox")
    if tier == "none":
        assert found["state"] == "note"
        assert "unconfined" in found["found"]
        assert found["remedy"]
    elif found["found"].startswith("landlock: "):
        assert found["state"] == "note"
        assert ".git/config" in found["found"]
        assert "no sockets" in found["found"]
        assert "bubblewrap" in found["remedy"] or "bubblewrap" in found["found"]
    else:
        assert "does not hold" in found["found"] or found["remedy"]
    shown = ran("config", "show", tier=tier, home=tmp_path)
    effect = next(one["sandbox"] for one in shown if "sandbox" in one)
    assert found["found"].partition(":")[0] in effect or "none" in effect


def test_the_hosts_that_commands_reach_are_said(tmp_path: Path) -> None:
    (tmp_path / "etude.toml").write_text('[sandbox]\nnetwork = ["pypi.org", "*.npmjs.org"]\n')
    found = next(one for one in ran("doctor", tier="auto", home=tmp_path) if one["name"] == "sandbox")
    if found["found"].startswith("bubblewrap: "):
        assert "with no network but pypi.org, *.npmjs.org" in found["found"]
        assert "without network" not in found["found"]
    else:
        assert "pypi.org" not in found["found"]  # no other tier holds commands to a list


def test_what_an_mcp_server_lacks_is_said(tmp_path: Path) -> None:
    (tmp_path / "etude.toml").write_text(
        '[mcp.gone]\ncommand = "no-such-program"\n'
        '[mcp.keyless]\nurl = "https://example.org/mcp"\ntoken_env = "NOT_SET"\n'
        '[mcp.there]\ncommand = "sh"\n'
    )
    found = {one["name"]: one for one in ran("doctor", tier="auto", home=tmp_path)}
    assert (found["MCP server gone"]["state"], found["MCP server there"]["state"]) == ("note", "ok")
    assert "'no-such-program'" in found["MCP server gone"]["found"]
    assert "NOT_SET" in found["MCP server keyless"]["found"]


def test_the_index_is_tried_and_its_languages_are_said(tmp_path: Path) -> None:
    found = next(one for one in ran("doctor", tier="auto", home=tmp_path) if one["name"] == "search index")
    assert found["state"] == "ok", found
    assert "python" in found["found"] and "typescript" in found["found"]
