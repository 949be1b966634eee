"""The shell tool in a real sandbox: state, deadlines, survivors, output, and what goes wrong."""

import asyncio
import json
import os
import time

import psutil
import pytest

from tests.support.hands import EIGHT, Hands, Opener
from tools.errors import InvalidArguments, OutsideWorkspace
from tools.sandbox import SandboxPolicy
from tools.shell import Shell, ShellSession


async def test_a_command_and_its_footer(shell: Hands) -> None:
    result = await shell("echo out; echo err >&2; exit_code() { return 4; }; exit_code")
    assert result.text.startswith("out\nerr\n[exit 4 · ")
    assert result.error is None
    assert result.full is None
    assert result.data["exit_code"] == 4
    assert result.data["tier"] == "bubblewrap"
    assert result.data["cwd"] == str(shell.root)
    assert (result.data["truncated"], result.data["timed_out"]) == (False, False)
    assert result.data["bytes"] == 8
    assert 0 <= result.data["duration_ms"] < 5000
    assert "".join(shell.live) == "out\nerr\n"
    assert (await shell("true")).text.startswith("(no output)\n[exit 0 · ")


async def test_folder_variables_and_functions_carry_over(shell: Hands) -> None:
    (shell.root / "sub dir").mkdir()
    first = await shell(
        "A=1; export B='two words'; f() { echo f-$A; }; cd 'sub dir'; alias ll='echo aliased'"
    )
    assert f"now in {shell.root}/sub dir" in first.text
    second = await shell('f; echo "$B"; pwd; env | grep ^B=; ll')
    assert second.text.startswith(f"f-1\ntwo words\n{shell.root}/sub dir\nB=two words\naliased\n[exit 0")
    assert "now in" not in second.text


async def test_cwd_is_for_one_command(shell: Hands) -> None:
    (shell.root / "it's").mkdir()
    assert (await shell("pwd; X=kept", cwd="it's")).text.startswith(f"{shell.root}/it's\n")
    assert (await shell("pwd; echo $X")).text.startswith(f"{shell.root}\nkept\n")
    assert (await shell("pwd", cwd=str(shell.root / "it's"))).text.startswith(f"{shell.root}/it's\n")
    assert (await shell("false", cwd="it's")).data["exit_code"] == 1


async def test_a_folder_outside_is_refused(shell: Hands) -> None:
    (shell.root / "link").symlink_to("/etc")
    (shell.root / "file").touch()
    for cwd in ("..", "/etc", "link", "../../.."):
        with pytest.raises(OutsideWorkspace, match="outside the workspace"):
            await shell("pwd", cwd=cwd)
    for cwd in ("missing", "file"):
        with pytest.raises(InvalidArguments, match="not a folder"):
            await shell("pwd", cwd=cwd)


async def test_arguments_are_checked() -> None:
    schema = Shell.schema()["function"]["parameters"]
    assert set(schema["properties"]) == {"command", "timeout_s", "background", "tty", "cwd"}
    assert schema["required"] == ["command"]
    for wrong in (
        '{"cmd": "ls"}',
        '{"command": ""}',
        '{"command": "a", "timeout_s": 3601}',
        '{"command": "a", "x": 1}',
    ):
        with pytest.raises(InvalidArguments, match="Known fields: command"):
            Shell.parse(wrong)


async def test_what_will_run_is_proposed_whole(shell: Hands) -> None:
    arguments = Shell.parse(json.dumps({"command": "echo " + "x" * 200 + "\nrm -rf build"}))
    proposal = await Shell().propose(arguments, shell.workspace)
    assert len(proposal.title) == 80
    assert proposal.command == arguments.command
    with pytest.raises(InvalidArguments, match="NUL"):
        await Shell().propose(Shell.parse(json.dumps({"command": "a\0b"})), shell.workspace)


@pytest.mark.case("agent-14")
async def test_the_very_first_command_keeps_its_output(opened: Opener) -> None:
    for _ in range(5):
        hands = opened(SandboxPolicy(tier="bubblewrap"))
        assert (await hands("ENV=hello && echo $ENV")).text.startswith("hello\n[exit 0")


@pytest.mark.case("agent-14")
async def test_quick_commands_never_lose_output(shell: Hands) -> None:
    await shell("RPROMPT='%~ right' PS1='> ' PROMPT_COMMAND='echo prompted'")
    for number in range(200):
        assert (await shell(f"echo {number}; /bin/echo x{number}")).text.startswith(
            f"{number}\nx{number}\n[exit 0"
        )


@pytest.mark.case("agent-9")
@pytest.mark.parametrize(
    ("command", "printed", "left"),
    [
        # A moment for what is started to become the program that it is to be.
        ("sleep 20 & sleep 0.2; echo done", "done\n", "sleep 20"),
        ("sleep 33 </dev/null >/dev/null 2>&1 & sleep 0.2", "", "sleep 33"),
        ("(yes > /dev/stderr &) ; sleep 0.2; echo ok", "", "yes"),
        ("(setsid sleep 21 >/dev/null 2>&1 &) ; sleep 0.2; echo ok", "ok\n", "sleep 21"),
    ],
)
async def test_children_in_the_background_do_not_hold_the_call(
    shell: Hands, command: str, printed: str, left: str
) -> None:
    await shell("true")
    began = time.monotonic()
    result = await shell(command)
    assert time.monotonic() - began < 1
    assert printed in result.text
    assert "Still running: " in result.text
    assert any(item["command"].endswith(left) for item in result.data["survivors"])
    pid = result.data["survivors"][0]["pid"]
    again = await shell(f"kill -0 {pid} && echo there; kill -9 {pid}; echo clean")
    assert again.text.startswith("there\nclean\n[exit 0"), "nothing of the survivor leaks into later output"
    assert (await shell("true")).data["survivors"] == []


async def test_a_survivor_may_go_on_writing(shell: Hands) -> None:
    await shell("(for i in $(seq 100); do echo tick; sleep 0.02; done; touch finished) &")
    result = await shell("for i in $(seq 300); do [ -e finished ] && break; sleep 0.1; done; ls finished")
    assert result.text.startswith("finished\n"), "it got no SIGPIPE, and its output went nowhere"


@pytest.mark.case("agent-10")
async def test_a_deadline_ends_what_escaped_too_and_keeps_what_was_printed(shell: Hands) -> None:
    await shell("KEPT=state")
    began = time.monotonic()
    result = await shell("echo before; setsid sleep 60 & sleep 60", timeout_s=2)
    assert 2 <= time.monotonic() - began < 2.6
    assert result.error == "timeout"
    assert result.data["timed_out"]
    assert result.text.startswith("before\n")
    assert "did not finish within 2 s" in result.text
    assert await shell.inside() == []
    assert (await shell("echo $KEPT")).text.startswith("state\n")


@pytest.mark.case("agent-10")
async def test_eight_children_that_hide_are_all_killed(shell: Hands) -> None:
    await shell("KEPT=state")
    result = await shell(EIGHT.format(61), timeout_s=1)
    assert result.data["duration_ms"] < 1250
    assert await shell.inside() == []
    assert (await shell("echo $KEPT; ps -e -o args | grep -c '[s]leep 61'")).text.startswith("state\n0\n")


async def test_a_deadline_spares_what_was_running_before(shell: Hands) -> None:
    await shell("sleep 77 >/dev/null 2>&1 &")
    await shell("sleep 60", timeout_s=0.3)
    assert "1\n" in (await shell("ps -e -o args | grep -c '[s]leep 77'")).text


@pytest.mark.parametrize(
    ("command", "kept"), [("while :; do :; done", True), ("trap '' INT; while :; do :; done", False)]
)
async def test_a_busy_shell_is_brought_back(shell: Hands, command: str, kept: bool) -> None:
    await shell("KEPT=state")
    result = await shell(command, timeout_s=1.5)  # on a busy machine too it has begun by then
    assert result.data["timed_out"]
    assert result.data["duration_ms"] < 2000
    assert result.data["state_lost"] == (not kept)
    after = await shell("echo [$KEPT]")
    assert after.text.startswith("[state]\n" if kept else "[]\n")


async def test_cancelling_kills_the_command_and_keeps_the_shell(shell: Hands) -> None:
    await shell("KEPT=state")
    for delay in (0.0, 0.001, 0.01, 0.2):
        call = asyncio.ensure_future(shell(EIGHT.format(62)))
        await asyncio.sleep(delay)
        call.cancel()
        began = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert time.monotonic() - began < 1
        assert (await shell("echo usable")).text.startswith("usable\n")
        assert await shell.inside() == []
    assert (await shell("echo $KEPT")).text.startswith("state\n")


async def test_commands_at_once_run_one_after_the_other(shell: Hands) -> None:
    calls = [shell(f"echo start {number}; sleep 0.1; echo end {number}") for number in range(4)]
    for number, result in enumerate(await asyncio.gather(*calls)):
        assert result.text.startswith(f"start {number}\nend {number}\n")
    waiting = [asyncio.ensure_future(shell("sleep 1")), asyncio.ensure_future(shell("echo never > never"))]
    await asyncio.sleep(0.1)
    waiting[1].cancel()
    await asyncio.wait(waiting)
    assert waiting[1].cancelled()
    assert not (shell.root / "never").exists()


@pytest.mark.case("agent-11")
@pytest.mark.parametrize(
    "command",
    [
        "cat",
        "python3 -c 'input()'",
        "python3",
        "read answer",
        "python3 -c 'import getpass; getpass.getpass()'",
        "git init -q r && cd r && git commit --allow-empty",
        "git clone http://localhost:1/nothing",
        "sudo -v",
        "ssh -o StrictHostKeyChecking=ask nobody@127.0.0.1",
    ],
)
async def test_nothing_can_wait_for_input(shell: Hands, command: str) -> None:
    await shell("true")
    result = await shell(command, timeout_s=30)
    assert result.data["ended"] == "exit"
    assert result.data["duration_ms"] < 2000
    assert (await shell("echo next")).text.startswith("next\n")


@pytest.mark.case("agent-11")
@pytest.mark.parametrize(
    "command", ["cat", "read -p 'name? ' name", "python3 -c 'import getpass; getpass.getpass()'"]
)
async def test_waiting_for_input_in_a_terminal_is_noticed(shell: Hands, command: str) -> None:
    await shell("true")
    result = await shell(command, tty=True, timeout_s=30)
    assert result.data["ended"] == "input"
    assert result.data["duration_ms"] < 2500
    assert "waited for input" in result.text
    assert (await shell("echo next")).text.startswith("next\n")


async def test_a_terminal_shares_the_shells_state(shell: Hands) -> None:
    await shell("BEFORE=1")
    result = await shell("test -t 0 && test -t 1 && tty; stty size; echo $BEFORE; AFTER=2", tty=True)
    lines = result.text.splitlines()
    assert lines[0].startswith("/dev/pts/")
    assert lines[1:3] == ["40 120", "1"]
    assert (await shell("test -t 0; echo $? $AFTER")).text.startswith("1 2\n")


@pytest.mark.case("agent-12")
async def test_leaving_the_shell_gives_its_code_and_a_fresh_one(shell: Hands) -> None:
    (shell.root / "sub").mkdir()
    await shell("A=1; cd sub")
    result = await shell("echo bye; exit 3")
    assert result.text.startswith("bye\n[exit 3 · ")
    assert "started afresh" in result.text
    assert result.data["exit_code"] == 3
    assert (await shell("echo [$A]; pwd")).text.startswith(f"[]\n{shell.root}\n[exit 0")
    for command, code in (("set -e; false; echo no", 1), ("exec true", 0), ("kill -9 $$", 137)):
        assert (await shell(command)).data["exit_code"] == code
        assert (await shell("echo alive")).text.startswith("alive\n")


@pytest.mark.case("agent-12")
async def test_nothing_that_is_printed_or_typed_has_a_meaning_to_us(shell: Hands) -> None:
    marks = "SHELLPS1PREFIX\n###PS1END###\n\\0exit\\0000\n"
    result = await shell("echo SHELLPS1PREFIX\necho '###PS1END###'\necho '\\0exit\\0000'")
    assert result.text.startswith(marks)
    assert (await shell("if then")).data["exit_code"] == 2
    assert (await shell('echo "unclosed')).data["exit_code"] != 0
    assert (await shell("cat <<'X'\nheredoc $HOME\nX")).text.startswith("heredoc $HOME\n")
    assert (await shell("for i in 1 2\ndo echo $i\ndone # comment")).text.startswith("1\n2\n[exit 0")


async def test_a_forged_status_neither_fools_nor_wedges(shell: Hands) -> None:
    await shell("true")
    forge = "for p in /proc/[0-9]*; do printf '\\0exit\\0007\\0\\0garbage' > $p/fd/4; done 2>/dev/null"
    result = await shell(f"{forge}; echo still here; sleep 0.3; echo end")
    assert "still here\nend\n" in result.text
    assert result.data["exit_code"] == 0
    flood = "for p in /proc/[0-9]*; do timeout 0.3 cat /dev/zero > $p/fd/4; done 2>/dev/null; echo over"
    assert "over\n" in (await shell(flood, timeout_s=60)).text
    assert (await shell("echo fine")).text.startswith("fine\n")


async def test_the_end_of_the_sandbox_is_an_ordinary_event(shell: Hands) -> None:
    await shell("A=1; touch /tmp/there kept")
    sandbox = await shell.session.sandbox()
    call = asyncio.ensure_future(shell("echo partial; sleep 60"))
    await asyncio.sleep(0.3)
    os.kill(sandbox.init, 9)
    result = await call
    assert result.error == "environment"
    assert result.text.startswith("partial\n[killed")
    after = await shell("echo [$A]; ls kept /tmp/there")
    assert "[]\n" in after.text
    assert "kept" in after.text
    assert "started again" in after.text
    assert (await shell("true")).data["notices"] == []


@pytest.mark.case("agent-13")
async def test_a_hundred_million_lines(shell: Hands) -> None:
    await shell("true")
    base = psutil.Process().memory_info().rss
    result = await shell("seq 1 100000000")
    assert result.text.startswith("1\n2\n3\n")
    assert "99999999\n100000000\n[exit 0 · " in result.text
    assert len(result.text) < 30_500
    assert "888,8" in result.text
    assert result.data["truncated"]
    assert result.data["bytes"] == 888888898
    assert psutil.Process().memory_info().rss - base < 64 * 1024 * 1024
    assert result.full is not None
    assert len(result.full) <= 16 * 1024 * 1024 + 200
    assert result.full.startswith(b"1\n2\n")
    assert result.full.endswith(b"100000000\n")
    assert len(shell.live) < 200
    assert sum(map(len, shell.live)) < 40_000


@pytest.mark.case("agent-13")
async def test_the_whole_output_can_be_looked_at(shell: Hands) -> None:
    result = await shell("seq 1 100000")
    place = result.text.partition("all of it is in ")[2].partition(" …]")[0]
    assert (await shell(f"wc -l < {place}; sed -n 50000p {place}")).text.startswith("100000\n50000\n")
    assert result.full == b"".join(b"%d\n" % number for number in range(1, 100_001))
    assert (await shell(f"echo x > {place}")).data["exit_code"] != 0
    for _ in range(9):
        await shell("seq 1 20000")
    assert (await shell(f"ls {place}")).data["exit_code"] != 0, "old outputs make room for new ones"


@pytest.mark.case("agent-13")
@pytest.mark.parametrize(
    "command",
    [
        "yes 'repeating text' | head -n 100000",
        "cat /bin/ls",
        "head -c 30000000 /dev/zero | tr '\\0' x",
        "head -c 3000000 /dev/urandom",
        "for i in $(seq 2000); do printf 'progress %d\\r\\033[K' $i; done; echo end",
        "printf '\\033[?2004hhello\\000\\033]0;t\\007'",
    ],
)
async def test_output_of_every_kind_is_bounded_and_clean(shell: Hands, command: str) -> None:
    result = await shell(command)
    assert result.data["exit_code"] == 0
    assert len(result.text) < 30_500
    assert not any(ord(sign) < 32 and sign not in "\n\t" for sign in result.text + "".join(shell.live))
    assert (await shell("echo next")).text.startswith("next\n")


async def test_a_smaller_limit_for_small_models(shell: Hands) -> None:
    shell.workspace.shell = ShellSession(shell.workspace, limit=6000)
    result = await shell("seq 1 100000")
    assert 5000 < len(result.text) < 6300


async def test_progress_comes_while_it_runs_and_coalesced(shell: Hands) -> None:
    await shell("true")
    seen: list[tuple[float, str]] = []
    began = time.monotonic()
    outcome = await shell.session.run(
        "for i in $(seq 40); do echo line $i; sleep 0.01; done",
        progress=lambda text: seen.append((time.monotonic() - began, text)),
    )
    assert "".join(text for _, text in seen) == outcome.text
    assert 3 < len(seen) < 40
    assert seen[0][0] < 0.2
