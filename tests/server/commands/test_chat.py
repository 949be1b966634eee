"""`etude chat` as a person uses it: one-shot, on a terminal, with its own server and with a running one."""

import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.scripted_model import ScriptedModel, Turn
from tests.support.served import ETUDE, Served, write_repository
from tests.support.terminal import Terminal

EDIT = {
    "calls": [
        {"name": "edit", "arguments": {"path": "hello.py", "edits": [{"old": "'helo'", "new": "'hello'"}]}}
    ]
}
READ = {"calls": [{"name": "read", "arguments": {"path": "hello.py"}}]}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    write_repository(folder, {"hello.py": "def greet():\n    return 'helo'\n"})
    return folder


def environment(tmp_path: Path, model: ScriptedModel, **more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ETUDE_", "NO_COLOR"))}
    (tmp_path / "home").mkdir(exist_ok=True)
    return {
        **kept,
        "HOME": str(tmp_path / "home"),
        "ETUDE_DATA": str(tmp_path / "data"),
        "ETUDE_MODEL": "openai:scripted",
        "OPENAI_BASE_URL": model.base_url,
        "OPENAI_API_KEY": "sk-scripted",
        **more,
    }


def chat(
    *arguments: str, cwd: Path, env: dict[str, str], stdin: str = ""
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [ETUDE, "chat", *arguments], cwd=cwd, env=env, input=stdin, capture_output=True, text=True, timeout=60
    )


def servers(data: Path) -> list[str]:
    """Command lines of servers on this data folder that still live."""
    alive = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            if "etude" in command and "serve" in command and (process / "cwd").resolve() == data.resolve():
                alive.append(command)
        except OSError:
            continue
    return alive


def test_one_message_with_a_server_of_its_own(workspace: Path, tmp_path: Path) -> None:
    with ScriptedModel(["Good **morning**."]) as model:
        done = chat("hello", cwd=workspace, env=environment(tmp_path, model))
    assert done.returncode == 0, done.stderr
    assert "Good **morning**." in done.stdout
    assert "\x1b" not in done.stdout
    assert model.requests[0]["messages"][-1]["content"].startswith("hello")
    assert not (tmp_path / "data" / "server.json").exists()
    assert servers(tmp_path / "data") == []


def test_the_message_comes_from_standard_input(workspace: Path, tmp_path: Path) -> None:
    with ScriptedModel(["Yes."]) as model:
        done = chat(cwd=workspace, env=environment(tmp_path, model), stdin="is it\nraining?\n")
        assert "Yes." in done.stdout
        assert "is it\nraining?" in model.requests[0]["messages"][-1]["content"]
        assert chat("", cwd=workspace, env=environment(tmp_path, model)).returncode == 2


def test_json_gives_each_character_once_and_ends_with_the_result(workspace: Path, tmp_path: Path) -> None:
    text = " ".join(f"word{number}" for number in range(200))
    with ScriptedModel([READ, Turn(text=text, delay_ms=2)]) as model:
        done = chat("hello", "--json", cwd=workspace, env=environment(tmp_path, model))
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    updates = [line["update"] for line in lines if line["type"] == "update"]
    said = [u["content"]["text"] for u in updates if u["sessionUpdate"] == "agent_message_chunk"]
    assert "".join(said) == text
    assert len(said) > 20
    assert lines[0]["type"] == "session"
    result = lines[-1]
    assert (result["type"], result["reason"], result["text"], result["steps"]) == (
        "result",
        "end_turn",
        text,
        2,
    )
    assert [u["title"] for u in updates if u["sessionUpdate"] == "tool_call"] != []


def test_the_running_server_is_used(tmp_path: Path) -> None:
    with ScriptedModel(["One.", "Two."]) as model, Served(model_url=model.base_url) as server:
        first = chat("hello", "--json", cwd=server.workspace, env=server.env)
        session = json.loads(first.stdout.splitlines()[0])["sessionId"]
        assert [row["id"] for row in server.get("/api/sessions")["sessions"]] == [session]
        again = chat("and again", "--resume", cwd=server.workspace, env=server.env)
        assert "Two." in again.stdout
        assert "One." in again.stdout  # what was said before is shown again
        messages = [message["role"] for message in model.requests[-1]["messages"]]
        assert messages == ["system", "user", "assistant", "user"]
        assert len(server.get("/api/sessions")["sessions"]) == 1


def test_a_wrong_token_is_a_configuration_error(tmp_path: Path) -> None:
    with ScriptedModel(["One."]) as model, Served(model_url=model.base_url) as server:
        env = {**server.env, "ETUDE_SERVER": server.url, "ETUDE_TOKEN": "wrong"}
        done = chat("hello", cwd=server.workspace, env=env)
        assert done.returncode == 2
        assert "token" in done.stderr
        assert "Traceback" not in done.stderr
        listed = subprocess.run([ETUDE, "sessions", "list"], env=env, capture_output=True, text=True)
        assert listed.returncode == 2
        assert "does not accept the token; check ETUDE_TOKEN" in listed.stderr


def test_what_needs_approval_is_refused_without_a_terminal(workspace: Path, tmp_path: Path) -> None:
    with ScriptedModel([READ, EDIT, "I may not."]) as model:
        done = chat("fix it", cwd=workspace, env=environment(tmp_path, model))
    assert "'helo'" in (workspace / "hello.py").read_text()
    assert "nobody can be asked" in done.stdout
    assert "+    return 'hello'" in done.stdout
    assert "I may not." in done.stdout


@pytest.mark.parametrize(("key", "changed"), [("y", True), ("a", True), ("n", False)])
def test_approvals_by_one_key(workspace: Path, tmp_path: Path, key: str, changed: bool) -> None:
    with (
        ScriptedModel([READ, EDIT, "Done."]) as model,
        Terminal([str(ETUDE), "chat", "fix it"], cwd=workspace, env=environment(tmp_path, model)) as terminal,
    ):
        terminal.expect("[y]es")
        assert "+    return 'hello'" in terminal.shown
        assert "\x1b[32m+    return 'hello'" in terminal.raw
        terminal.type(key)
        terminal.expect("Done.")
        assert terminal.wait() == 0
    assert ("'hello'" in (workspace / "hello.py").read_text()) is changed


def test_ctrl_c_stops_the_turn_and_not_the_session(workspace: Path, tmp_path: Path) -> None:
    slow = Turn(text="word " * 2000, delay_ms=20)
    with (
        ScriptedModel([slow, "Here again."]) as model,
        Terminal([str(ETUDE), "chat"], cwd=workspace, env=environment(tmp_path, model)) as terminal,
    ):
        terminal.expect("› ")
        terminal.type("count\n")
        terminal.expect("word word")
        terminal.interrupt()
        terminal.expect("interrupted", timeout=5)
        terminal.expect("› ")
        assert model.cut == 1
        terminal.type("still there?\n")
        terminal.expect("Here again.")
        terminal.expect("› ")
        assert model.requests[-1]["messages"][1]["content"].startswith("count")
        time.sleep(0.2)  # no person presses a key in the instant between the prompt and the wait for keys
        terminal.interrupt()
        terminal.expect("again to leave")
        terminal.expect("› ")
        time.sleep(0.2)
        terminal.interrupt()
        assert terminal.wait() == 130
    assert servers(tmp_path / "data") == []


def test_slash_commands(workspace: Path, tmp_path: Path) -> None:
    with (
        ScriptedModel(["Hi."]) as model,
        Terminal([str(ETUDE), "chat"], cwd=workspace, env=environment(tmp_path, model)) as terminal,
    ):
        terminal.expect("mode ask")
        for typed, shown in (
            ("/help", "Ctrl-C stops"),
            ("/mode plan", "mode: plan"),
            ("/mode yolo", "there is no mode yolo; mode plan; plan, ask, auto and full can be chosen"),
            ("/modle", "there is no command /modle"),
            ("/model nosuch", "nosuch"),
            ("/sessions", "* "),
        ):
            terminal.expect("› ")
            terminal.type(typed + "\n")
            terminal.expect(shown)
        terminal.expect("› ")
        terminal.type("one \\\n")
        terminal.expect("… ")
        terminal.type("two\n")
        terminal.expect("Hi.")
        assert "one \ntwo" in model.requests[0]["messages"][-1]["content"]
        terminal.expect("› ")
        terminal.type("/quit\n")
        assert terminal.wait() == 0
    assert (tmp_path / "data" / "chat-history").stat().st_mode & 0o777 == 0o600


def test_undo_shows_what_the_agent_changed_and_takes_it_back(workspace: Path, tmp_path: Path) -> None:
    hello, new = workspace / "hello.py", workspace / "new.txt"
    before = hello.read_text()
    calls = [
        {"name": "read", "arguments": {"path": "hello.py"}},
        {"name": "write", "arguments": {"path": "new.txt", "content": "new\n"}},
        {"name": "write", "arguments": {"path": "hello.py", "content": "print()\n"}},
    ]
    with (
        ScriptedModel([*({"calls": [call]} for call in calls), "Hi."]) as model,
        Terminal(
            [str(ETUDE), "chat", "--mode", "auto"], cwd=workspace, env=environment(tmp_path, model)
        ) as terminal,
    ):
        terminal.expect("› ")
        terminal.type("/undo\n")
        terminal.expect("there is nothing to take back yet")
        terminal.expect("› ")
        terminal.type("change it\n")
        terminal.expect("2 files changed")
        assert new.exists()
        for typed, answered, said in (
            ("/undo", "n", "nothing was taken back"),
            ("/undo hello.py", "y", "taken back in 1 file"),
            ("/undo 1", "y", "taken back in 1 file"),
        ):
            terminal.expect("› ")
            terminal.type(typed + "\n")
            terminal.expect("Take this back?")
            terminal.type(answered + "\n")
            terminal.expect(said)
        assert hello.read_text() == before
        assert not new.exists()
        terminal.expect("› ")
        terminal.type("/undo\n")
        terminal.expect("nothing of turn 1 is left to take back")
        terminal.expect("› ")
        terminal.type("/undo 7\n")
        terminal.expect("no turn 7")
        terminal.expect("› ")
        terminal.type("/quit\n")
        assert terminal.wait() == 0


def test_one_message_in_a_terminal_says_how_it_ended(workspace: Path, tmp_path: Path) -> None:
    with (
        ScriptedModel([Turn(text="An answer that is", finish="length")]) as model,
        Terminal([str(ETUDE), "chat", "hello"], cwd=workspace, env=environment(tmp_path, model)) as terminal,
    ):
        terminal.expect("cut off at the output limit")
        assert terminal.wait() == 1
    assert "context is full" not in terminal.shown
    assert "1 step" in terminal.shown


def test_text_of_a_model_cannot_drive_the_terminal(workspace: Path, tmp_path: Path) -> None:
    evil = "a\x1b]0;owned\x07b\x1b[2Jc\x9b31md\re"
    with (
        ScriptedModel([evil]) as model,
        Terminal([str(ETUDE), "chat", "hello"], cwd=workspace, env=environment(tmp_path, model)) as terminal,
    ):
        assert terminal.wait() == 0
    assert "\x1b]0;" not in terminal.raw
    assert "\x1b[2J" not in terminal.raw
    assert "\x9b" not in terminal.raw
    assert "owned" not in terminal.shown


def test_no_color_is_honoured(workspace: Path, tmp_path: Path) -> None:
    with (
        ScriptedModel(["**bold**"]) as model,
        Terminal(
            [str(ETUDE), "chat", "hello"], cwd=workspace, env=environment(tmp_path, model, NO_COLOR="1")
        ) as terminal,
    ):
        assert terminal.wait() == 0
    assert "**bold**" in terminal.raw
    assert re.search(r"\x1b\[[0-9;]*m", terminal.raw) is None


@pytest.mark.case("agent-2")
def test_a_server_that_comes_back_is_found_again(tmp_path: Path) -> None:
    """Killed in the middle of a turn and started again on the same port: the chat reconnects and says so."""
    slow = Turn(text="word " * 4000, delay_ms=20)
    with ScriptedModel([slow, "Fine."]) as model, Served(model_url=model.base_url) as server:
        port = str(server.info["port"])
        env = {**server.env, "ETUDE_SERVER": server.url, "ETUDE_TOKEN": server.token}
        token = subprocess.run(
            [ETUDE, "token", "add", "me"], env=server.env, capture_output=True, text=True
        ).stdout.strip()
        env["ETUDE_TOKEN"] = token
        with Terminal([str(ETUDE), "chat"], cwd=server.workspace, env=env) as terminal:
            terminal.expect("› ")
            terminal.type("count\n")
            terminal.expect("word word")
            server.kill()
            terminal.expect("reconnecting")
            time.sleep(0.5)
            server.arguments = (*server.arguments, "--port", port)
            server.start()
            terminal.expect("send a message to go on", timeout=30)
            terminal.expect("› ")
            terminal.type("go on\n")
            terminal.expect("Fine.")


@pytest.mark.case("agent-30")
def test_a_session_outlives_the_key_of_its_model(workspace: Path, tmp_path: Path) -> None:
    """Without the key of its model a session is readable, says what is missing, and goes on with another."""
    with (
        ScriptedModel(["From the old one."], key="sk-old") as old,
        ScriptedModel(["From the new one."]) as new,
    ):
        configured = {
            "ETUDE_MODEL": "old",
            "ETUDE_MODELS__OLD__MODEL": "scripted",
            "ETUDE_MODELS__OLD__BASE_URL": old.base_url,
            "ETUDE_MODELS__OLD__API_KEY_ENV": "OLD_KEY",
            "ETUDE_MODELS__NEW__MODEL": "scripted",
            "ETUDE_MODELS__NEW__BASE_URL": new.base_url,
        }
        env = environment(tmp_path, new, **configured)
        assert "From the old one." in chat("hello", cwd=workspace, env={**env, "OLD_KEY": "sk-old"}).stdout

        keyless = chat("are you there?", "--resume", cwd=workspace, env=env)
        assert keyless.returncode == 1
        assert "From the old one." in keyless.stdout
        assert "OLD_KEY" in keyless.stdout

        other = chat("go on", "--resume", "--model", "new", cwd=workspace, env=env)
        assert other.returncode == 0
        assert "From the new one." in other.stdout
        said = [m["content"] for m in new.requests[-1]["messages"] if m["role"] == "assistant"]
        assert "From the old one." in said


def test_the_output_of_a_command_is_seen_as_it_comes(workspace: Path, tmp_path: Path) -> None:
    command = "echo begins; sleep 2; echo ends; seq 1 100 | tail -n 1"
    shell = {"calls": [{"name": "shell", "arguments": {"command": command}}]}
    with (
        ScriptedModel([shell, "Done."]) as model,
        Terminal(
            [str(ETUDE), "chat", "--mode", "full", "go"], cwd=workspace, env=environment(tmp_path, model)
        ) as terminal,
    ):
        terminal.expect("    begins")
        began = time.monotonic()
        terminal.expect("    ends")
        assert time.monotonic() - began > 1
        terminal.expect("Done.")
        assert terminal.wait() == 0
        assert terminal.shown.count("    begins") == 1
        assert "exit 0" in terminal.shown


def test_a_question_of_the_agent_is_answered_by_a_number_or_in_words(workspace: Path, tmp_path: Path) -> None:
    free = {"calls": [{"name": "ask", "arguments": {"question": "What is its name?"}}]}
    choice = {"calls": [{"name": "ask", "arguments": {"question": "Which?", "options": ["red", "blue"]}}]}
    with ScriptedModel([free, choice, choice, "All said."]) as model:
        env = environment(tmp_path, model)
        with Terminal([str(ETUDE), "chat", "go"], cwd=workspace, env=env) as terminal:
            terminal.expect("What is its name?")
            terminal.expect("your answer:")
            terminal.type("Étude the 2nd\n")
            terminal.expect("2  blue")
            terminal.expect("or your own words:")
            terminal.type("2\n")
            terminal.expect("or your own words:")
            terminal.type("\n")
            terminal.expect("All said.")
            assert terminal.wait() == 0
    answers = [message["content"] for message in model.requests[-1]["messages"] if message["role"] == "tool"]
    assert answers[:2] == ["Étude the 2nd", "blue"]
    assert answers[2].startswith("The user did not answer (declined)")
