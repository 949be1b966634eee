"""What a shell session owns beyond one command: jobs, limits, its end, and the end of its server."""

import asyncio
import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from tests.support.hands import EIGHT, Hands, Opener
from tests.support.processes import gone_within, matching
from tools.errors import EnvironmentFault, InvalidArguments
from tools.sandbox import SandboxPolicy


async def test_a_background_job_has_its_output_in_a_file(shell: Hands) -> None:
    await shell("STATE=copied")
    result = await shell("echo started $STATE; sleep 0.8; echo finished; exit 5", background=True)
    assert result.text.startswith("started copied\n[job 1 runs in the background · pid ")
    assert result.data["running"]
    place = result.data["output"]
    assert (await shell(f"cat {place}")).text.startswith("started copied\n[")
    job = shell.session.jobs["1"]
    await asyncio.wait_for(asyncio.shield(job.ended), 5)
    assert (job.exit_code, job.running) == (5, False)
    assert (await shell(f"cat {place}")).text.startswith("started copied\nfinished\n")
    over = await shell("echo quick; exit 2", background=True)
    assert over.text.startswith("quick\n[job 2 ended at once · exit 2 · ")


async def test_a_background_job_ends_with_all_it_started(shell: Hands) -> None:
    await shell(EIGHT.format(63), background=True)
    await shell("sleep 0.2")
    job = shell.session.jobs["1"]
    assert len(await shell.inside()) >= 8
    began = time.monotonic()
    assert await shell.session.end(job)
    assert time.monotonic() - began < 0.25
    assert await shell.inside() == []


async def test_a_background_job_outlives_commands_and_the_shell(shell: Hands) -> None:
    result = await shell("sleep 0.2; python3 -u -m http.server 8123 --bind 127.0.0.1", background=True)
    assert result.data["running"]
    fetch = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8123/').status)"
    await shell("sleep 1.5")
    assert (await shell(f'python3 -c "{fetch}"')).text.startswith("200\n")
    await shell("sleep 60", timeout_s=0.3)
    await shell("exit 1")
    assert (await shell(f'python3 -c "{fetch}"')).text.startswith("200\n")
    assert shell.session.jobs["1"].running


async def test_a_background_job_in_a_terminal_takes_input(shell: Hands) -> None:
    await shell("read -p 'who? ' who; echo hi $who; sleep 60", background=True, tty=True)
    job = shell.session.jobs["1"]
    assert job.waiting()
    job.send("bob\n")
    for _ in range(50):
        await asyncio.sleep(0.05)
        if "hi bob" in job.output.text()[0]:
            break
    assert "who? bob\nhi bob\n" in job.output.text()[0]
    assert not job.waiting()
    job.send("\x03")
    await asyncio.wait_for(asyncio.shield(job.ended), 5)
    with pytest.raises(InvalidArguments, match="has ended"):
        job.send("more\n")


@pytest.mark.parametrize("background", [False, True])
async def test_a_command_that_cannot_be_handed_over_is_the_machines_fault(
    shell: Hands, background: bool
) -> None:
    await shell("true")
    sandbox = await shell.session.sandbox()
    before = len(os.listdir("/proc/self/fd"))
    shutil.rmtree(sandbox.run_folder)
    with pytest.raises(EnvironmentFault, match="could not be handed to the shell"):
        await shell("touch ran", background=background)
    assert not (shell.root / "ran").exists()
    assert len(os.listdir("/proc/self/fd")) <= before


async def test_a_job_whose_start_is_cancelled_leaves_no_reader(shell: Hands) -> None:
    await shell("true")
    before = len(os.listdir("/proc/self/fd"))
    starting = asyncio.create_task(shell("sleep 0.2", background=True))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert shell.session.jobs == {}
    assert len(os.listdir("/proc/self/fd")) <= before
    assert (await shell("echo next")).text.startswith("next")


async def test_tools_of_the_trade_work(shell: Hands) -> None:
    (shell.root / "app.js").write_text("console.log('node', process.version.split('.').length)")
    assert (await shell("node app.js")).text.startswith("node 3\n")
    commit = "git init -q . && git add -A && git commit -qm first"
    assert (await shell(f"{commit} && git log --format=%s%n%an && git status --short")).text.startswith(
        "first\nEtude\n[exit 0"
    )
    code = "import multiprocessing as m; print(sum(m.get_context('fork').Pool(2).map(abs, [-1, -2])))"
    assert (await shell(f'python3 -c "{code}"')).text.startswith("3\n")


async def test_a_fork_bomb_is_survived(opened: Opener) -> None:
    hands = opened(SandboxPolicy(tier="bubblewrap", pids=128))
    await hands("true")
    result = await hands("bomb() { bomb | bomb & }; bomb; sleep 5", timeout_s=2)
    assert result.data["ended"] in ("timeout", "exit", "died")
    after = await hands("echo alive")
    assert "alive\n" in after.text
    assert len(await hands.inside()) < 128


async def test_a_memory_hog_is_stopped(opened: Opener) -> None:
    hands = opened(SandboxPolicy(tier="bubblewrap", memory_mb=256))
    result = await hands("python3 -c 'x = bytearray(700_000_000); import time; time.sleep(20)'", timeout_s=60)
    assert result.data["duration_ms"] < 15_000
    assert result.data["exit_code"] != 0
    assert "memory" in result.text or "more than 256 MB" in result.text
    assert "alive\n" in (await hands("echo alive")).text


async def test_a_full_tmp_fails_the_write_and_nothing_else(opened: Opener) -> None:
    hands = opened(SandboxPolicy(tier="bubblewrap", memory_mb=256))
    result = await hands("head -c 500000000 /dev/zero > /tmp/big; echo $?; rm /tmp/big")
    assert "No space left" in result.text
    assert (await hands("echo alive")).text.startswith("alive\n")


async def test_closing_gives_everything_back(opened: Opener) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    warm = opened(SandboxPolicy(tier="bubblewrap"))
    await warm("true")
    await warm.workspace.close()
    before = descriptors()
    hands = opened(SandboxPolicy(tier="bubblewrap"))
    await hands("sleep 64 & (setsid sleep 64 &) ; seq 1 100000; true")
    await hands("sleep 64", background=True)
    folder = (await hands.session.sandbox()).run_folder
    running = asyncio.ensure_future(hands("sleep 64"))
    await asyncio.sleep(0.1)
    await hands.workspace.close()
    assert (await running).data["exit_code"] is None
    assert descriptors() == before
    assert not folder.exists()
    assert gone_within("sleep 64", 2)


SERVER = """
import asyncio, sys
from pathlib import Path
from tools.sandbox import SandboxPolicy
from tools.shell import ShellSession
from tools.workspace import Workspace

async def main():
    session = await ShellSession.start(Workspace(Path(sys.argv[1]), SandboxPolicy(tier=sys.argv[2])))
    await session.run(f"setsid {sys.argv[3]} & (setsid env -i {sys.argv[3]} &) ; nohup {sys.argv[3]} &")
    print("ready", flush=True)
    await session.run(sys.argv[3])

asyncio.run(main())
"""


@pytest.mark.case("agent-29")
@pytest.mark.parametrize("tier", ["bubblewrap", "none"])
async def test_nothing_outlives_a_killed_server(tmp_path: Path, tier: str) -> None:
    mark = f"sleep 86400.{os.getpid()}{len(tier)}"
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVER, str(tmp_path.resolve()), tier, mark),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert server.stdout is not None
    assert await asyncio.wait_for(server.stdout.readline(), 30) == b"ready\n"
    await asyncio.sleep(0.2)
    assert len(matching(mark)) >= 4
    server.kill()
    await server.wait()
    assert await asyncio.to_thread(gone_within, mark, 5)


async def test_unconfined_is_the_same_shell_and_says_so(opened: Opener) -> None:
    hands = opened(SandboxPolicy(tier="none"))
    assert (await hands("A=1; echo hi")).data["tier"] == "none"
    result = await hands("echo $A; " + EIGHT.format(65), timeout_s=0.5)
    assert result.text.startswith("1\n")
    assert result.data["timed_out"]
    assert await hands.inside() == []
    assert (await hands("exit 3")).data["exit_code"] == 3
    assert (await hands("cat; echo end")).text.startswith("end\n")
