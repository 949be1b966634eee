"""Background jobs through `shell_read`, `shell_send` and `shell_kill`."""

import json
import os
import time
from typing import Any

import pytest

from tests.support.hands import Hands
from tools.errors import InvalidArguments, ToolError
from tools.result import ToolResult
from tools.shell_kill import ShellKill
from tools.shell_read import ShellRead
from tools.shell_send import ShellSend
from tools.tool import Tool


async def call(tool: type[Tool], hands: Hands, **arguments: Any) -> ToolResult:
    parsed = tool.parse(json.dumps(arguments))
    await tool().propose(parsed, hands.workspace)
    return await tool().run(parsed, hands.workspace, lambda text: None)


async def test_each_read_shows_what_is_new(shell: Hands) -> None:
    started = await shell("echo one; until [ -e go ]; do sleep 0.02; done; echo two; exit 4", background=True)
    assert "one\n" in started.text
    job = started.data["job"]
    nothing = await call(ShellRead, shell, job=job)
    assert nothing.text.startswith("(no new output)\n[job ") and nothing.data["running"]
    await shell("touch go")
    ended = await call(ShellRead, shell, job=job, wait_s=20)
    assert ended.text.startswith("two\n[job ")
    assert (ended.data["running"], ended.data["exit_code"]) == (False, 4)
    assert ended.data["tier"] == "bubblewrap"
    again = await call(ShellRead, shell, job=f"job {job}")
    assert again.text.startswith("(no new output)")


async def test_of_jobs_that_ended_only_the_newest_are_kept(shell: Hands) -> None:
    first = (await shell("echo first", background=True)).data["job"]
    running = (await shell("sleep 600", background=True)).data["job"]
    for _ in range(32):
        await shell("echo more", background=True)
    last = (await shell("echo more", background=True)).data["job"]
    files = len(os.listdir("/proc/self/fd"))
    for _ in range(8):
        last = (await shell("echo more", background=True)).data["job"]
    assert len(os.listdir("/proc/self/fd")) <= files
    with pytest.raises(InvalidArguments, match="no job"):
        await call(ShellRead, shell, job=first)
    assert (await call(ShellRead, shell, job=running)).data["running"]
    assert (await call(ShellRead, shell, job=last)).data["exit_code"] == 0


async def test_waiting_ends_at_its_time(shell: Hands) -> None:
    job = (await shell("sleep 60", background=True)).data["job"]
    began = time.monotonic()
    result = await call(ShellRead, shell, job=job, wait_s=0.3)
    assert 0.25 <= time.monotonic() - began < 5
    assert result.data["running"] and "runs" in result.text


async def test_a_program_that_asks_is_answered(shell: Hands) -> None:
    started = await shell(
        'read -p "name? " name; echo "hello $name"; read -sp "secret? "; echo; echo done',
        background=True,
        tty=True,
    )
    job = started.data["job"]
    asked = await call(ShellRead, shell, job=job, wait_s=10)
    assert asked.data["waiting"] and "shell_send" in asked.text
    answered = await call(ShellSend, shell, job=job, text="world\n")
    assert "hello world" in answered.text and "secret? " in answered.text and answered.data["waiting"]
    finished = await call(ShellSend, shell, job=job, text="hidden\n")
    assert "hidden" not in finished.text
    last = await call(ShellRead, shell, job=job, wait_s=10)
    assert "done" in finished.text + last.text and last.data["exit_code"] == 0


async def test_an_interrupt_can_be_typed(shell: Hands) -> None:
    job = (await shell("trap 'echo caught; exit 9' INT; sleep 60 & wait", background=True, tty=True)).data[
        "job"
    ]
    result = await call(ShellSend, shell, job=job, text="\x03")
    last = await call(ShellRead, shell, job=job, wait_s=10)
    assert "caught" in result.text + last.text
    assert last.data["running"] is False


async def test_kill_ends_everything_a_job_started(shell: Hands) -> None:
    await shell("true")
    before = await shell.inside()
    job = (await shell("sleep 61 & setsid sleep 62 & (env sleep 63 &); sleep 64", background=True)).data[
        "job"
    ]
    assert len(await shell.inside()) >= len(before) + 4
    result = await call(ShellKill, shell, job=job)
    assert not result.data["running"] and "ended" in result.text
    assert await shell.inside() == before
    again = await call(ShellKill, shell, job=job)
    assert not again.data["running"]
    with pytest.raises(InvalidArguments, match="no terminal"):
        await call(ShellSend, shell, job=job, text="x\n")


async def test_much_output_is_shown_from_both_ends_and_kept(shell: Hands) -> None:
    started = await shell("seq 1 200000; sleep 1; echo the end; sleep 60", background=True)
    job = started.data["job"]
    texts = [started.text]
    while "the end" not in texts[-1]:
        texts.append((await call(ShellRead, shell, job=job, wait_s=0.5)).text)
        assert len(texts) < 40
    shown = "\n".join(texts)
    assert shown.lstrip().startswith("1\n2\n") and "left out" in shown
    assert all(len(text.encode()) <= shell.workspace.output_limit + 500 for text in texts)
    path = texts[-1].rsplit("all its output: ", 1)[1].rstrip("]\n")
    assert (await shell(f"head -200000 {path} | tail -1")).text.startswith("200000\n")


async def test_what_overflows_is_counted(shell: Hands) -> None:
    job = (await shell("sleep 0.5; head -c 20000000 /dev/zero | tr '\\0' x; sleep 60", background=True)).data[
        "job"
    ]
    await shell("sleep 3")
    while (result := await call(ShellRead, shell, job=job, wait_s=0.2)).data["bytes"] < 20_000_000:
        assert result.data["running"]
    assert result.data["truncated"] and "left out" in result.text


async def test_unknown_jobs_are_refused_with_those_there_are(shell: Hands) -> None:
    with pytest.raises(InvalidArguments, match="No job was started"):
        await call(ShellRead, shell, job="7")
    await shell("sleep 60", background=True)
    for tool, more in ((ShellRead, {}), (ShellSend, {"text": "x"}), (ShellKill, {})):
        with pytest.raises(ToolError, match=r"The jobs are: 1 \('sleep 60'\)"):
            await call(tool, shell, job="2", **more)


async def test_a_job_of_white_space_ends_like_any_other(shell: Hands) -> None:
    job = (await shell(" \n ", background=True)).data["job"]
    result = await call(ShellRead, shell, job=job, wait_s=10)
    assert (result.data["running"], result.data["exit_code"]) == (False, 0)
    assert not (await call(ShellKill, shell, job=job)).data["running"]
