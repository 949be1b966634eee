"""`etude run`: no person, clear limits, exit codes that scripts can rely on."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.scripted_model import ScriptedModel, Turn
from tests.support.served import ETUDE, Served, write_repository
from tests.support.terminal import Terminal

READ = {"calls": [{"name": "read", "arguments": {"path": "hello.py"}}]}
EDIT = {
    "calls": [
        {"name": "edit", "arguments": {"path": "hello.py", "edits": [{"old": "'helo'", "new": "'hello'"}]}}
    ]
}


class Place:
    """A workspace and the environment of a user with an empty home."""

    def __init__(self, folder: Path) -> None:
        self.workspace, self.data = folder / "workspace", folder / "data"
        write_repository(self.workspace, {"hello.py": "def greet():\n    return 'helo'\n"})
        (folder / "home").mkdir()
        self.home = folder / "home"

    def env(self, model: ScriptedModel, **more: str) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("ETUDE_")}
        return {
            **kept,
            "HOME": str(self.home),
            "ETUDE_DATA": str(self.data),
            "ETUDE_MODELS__BIG__MODEL": "scripted",
            "ETUDE_MODELS__BIG__PRICE__INPUT": "1000",
            "ETUDE_MODELS__BIG__PRICE__OUTPUT": "1000",
            "OPENAI_BASE_URL": model.base_url,
            "OPENAI_API_KEY": "sk-scripted",
            **more,
        }

    def run(self, model: ScriptedModel, *arguments: str, **more: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [ETUDE, "run", *arguments],
            cwd=self.workspace, env=self.env(model, **more), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=90,
        )  # fmt: skip

    def result(self, model: ScriptedModel, *arguments: str) -> tuple[int, dict[str, Any]]:
        done = self.run(model, *arguments, "--json")
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_the_answer_is_all_of_standard_output(place: Place) -> None:
    with ScriptedModel([READ, EDIT, "The greeting is right now."]) as model:
        done = place.run(model, "fix the greeting", "--mode", "full")
    assert (done.returncode, done.stdout) == (0, "The greeting is right now.\n")
    assert "changed hello.py" in done.stderr
    assert "3 steps" in done.stderr
    assert "'hello'" in (place.workspace / "hello.py").read_text()


def test_the_result_says_what_happened(place: Place) -> None:
    with ScriptedModel([READ, EDIT, "Done."]) as model:
        code, result = place.result(model, "fix the greeting", "--mode", "auto")
    assert code == 0
    assert (result["reason"], result["text"], result["changed"]) == ("end_turn", "Done.", ["hello.py"])
    assert result["steps"] == 3
    assert result["usage"]["input"] > 0
    assert result["cost"] > 0
    assert (result["model"], result["mode"]) == ("big", "auto")


@pytest.mark.case("agent-25")
def test_what_needs_a_person_is_refused(place: Place) -> None:
    with ScriptedModel([READ, EDIT, "I was not allowed to."]) as model:
        done = place.run(model, "fix the greeting")
    assert done.returncode == 0
    assert "'helo'" in (place.workspace / "hello.py").read_text()
    assert "nobody is here to approve it" in done.stderr
    assert "1 call was refused in mode ask; --mode auto" in done.stderr
    answer = model.requests[-1]["messages"][-1]
    assert answer["role"] == "tool"
    assert (
        "hello.py" not in answer["content"]
        or "denied" in answer["content"].lower()
        or "not" in answer["content"]
    )


def test_a_step_limit(place: Place) -> None:
    # A model takes its time, in which whoever counts the cost can stop it.
    reads = [
        Turn(calls=[{"name": "read", "arguments": {"path": "hello.py", "start": n}}], first_ms=400)
        for n in (1, 2, 1, 2, 1)
    ]
    with ScriptedModel([*reads, "never"]) as model:
        code, result = place.result(model, "read for ever", "--max-steps", "3")
    assert (code, result["reason"]) == (1, "max_steps")
    assert len(model.requests) == 3


def test_a_cost_limit(place: Place) -> None:
    # A model takes its time, in which whoever counts the cost can stop it.
    reads = [
        Turn(calls=[{"name": "read", "arguments": {"path": "hello.py", "start": n}}], first_ms=400)
        for n in (1, 2, 1, 2, 1)
    ]
    with ScriptedModel([*reads, "never"]) as model:
        code, result = place.result(model, "read for ever", "--max-cost", "0.001")
    assert (code, result["reason"]) == (1, "max_cost")
    assert len(model.requests) <= 3


def test_a_time_limit(place: Place) -> None:
    with ScriptedModel([Turn(text="word " * 5000, delay_ms=50)]) as model:
        started = time.monotonic()
        code, result = place.result(model, "talk", "--timeout", "2")
    assert (code, result["reason"]) == (1, "timeout")
    assert result["text"].startswith("word")
    assert time.monotonic() - started < 30


def test_an_endpoint_that_fails(place: Place) -> None:
    error = {"error": {"message": "no such model"}}
    with ScriptedModel([Turn(status=404, error=error)]) as model:
        code, result = place.result(model, "hello")
    assert (code, result["reason"]) == (1, "model_error")
    assert "no such model" in result["message"]


def test_ctrl_c_is_130(place: Place) -> None:
    with (
        ScriptedModel([Turn(text="word " * 5000, delay_ms=50)]) as model,
        subprocess.Popen(
            [ETUDE, "run", "talk", "--json"],
            cwd=place.workspace,
            env=place.env(model),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        model.wait(lambda model: bool(model.requests), 30)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        result = json.loads(process.stdout.read().splitlines()[-1])
        assert process.wait(30) == 130
    assert result["reason"] == "interrupted"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["x", "--max-steps", "0"], "--max-steps"),
        (["x", "--timeout", "never"], "--timeout: 'never' is not a number above 0"),
        (["x", "--model", "nosuch"], "nosuch"),
        (["x", "--workspace", "nowhere"], "not a folder"),
        ([" "], "empty"),
        ([], "empty"),
    ],
)
def test_usage_is_2(place: Place, arguments: list[str], says: str) -> None:
    with ScriptedModel(["never"]) as model:
        done = place.run(model, *arguments)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert model.requests == []


def test_a_cost_limit_without_a_price_is_said_to_be_none(place: Place) -> None:
    with ScriptedModel(["Done."]) as model:
        done = place.run(model, "hello", "--model", "openai:scripted", "--max-cost", "1")
    assert done.returncode == 0
    assert done.stderr.count("--max-cost cannot stop it") == 1


def test_an_unknown_model_is_a_configuration_error_and_leaves_no_session() -> None:
    """Also where a server runs that was started without it."""
    with ScriptedModel(["never"]) as model, Served(model_url=model.base_url) as server:
        done = subprocess.run(
            [ETUDE, "run", "hello", "--model", "nosuch"],
            cwd=server.workspace, env=server.env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 2
        assert "There is no model 'nosuch'" in done.stderr
        assert server.get("/api/sessions")["sessions"] == []


def test_in_a_terminal_the_answer_is_shown_once(place: Place) -> None:
    with (
        ScriptedModel(["The answer."]) as model,
        Terminal([str(ETUDE), "run", "hello"], cwd=place.workspace, env=place.env(model)) as terminal,
    ):
        assert terminal.wait() == 0
    assert terminal.shown.count("The answer.") == 1


def test_a_task_that_is_no_text_or_far_too_long_is_no_riddle(place: Place) -> None:
    with ScriptedModel(["fine"]) as model:
        done = place.run(model, "say \udcff hello")
        assert (done.returncode, done.stdout.strip()) == (0, "fine"), done.stderr
        environment = place.env(model)
        long = subprocess.run(
            [ETUDE, "run"], cwd=place.workspace, env=environment, input="x" * (17 << 20),
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    assert long.returncode == 1
    assert "more than the" in long.stderr
    assert "Traceback" not in long.stderr
