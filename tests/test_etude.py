"""The front door inside a repository that has packages and modules named like ours and like Python's."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

ETUDE = str(Path(sys.executable).parent / "etude")
ROOT = Path(__file__).resolve().parents[1]

ROOMS = ("tools", "agent", "server", "trainer", "migrations")
MODULES = (
    "sitecustomize",
    "usercustomize",
    "uvloop",
    "argparse",
    "json",
    "asyncio",
    "platformdirs",
    "pydantic",
)
CONFESSION = (
    "import os, sys\nwith open(os.environ['CONFESS'], 'a') as file:\n    file.write(__name__ + '\\n')\n"
)


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A repository whose every module confesses that it was run."""
    repository = tmp_path / "repository"
    for room in ROOMS:
        (repository / room).mkdir(parents=True)
        (repository / room / "__init__.py").write_text(CONFESSION)
    (repository / "server" / "commands").mkdir()
    (repository / "server" / "commands" / "__init__.py").write_text(CONFESSION)
    for module in MODULES:
        (repository / f"{module}.py").write_text(CONFESSION)
    subprocess.run(["git", "init", "-q"], cwd=repository, check=True)
    return repository


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("ETUDE_", "PYTHON", "OPENAI_"))
    }
    return {
        **kept,
        "HOME": str(home),
        "ETUDE_DATA": str(tmp_path / "data"),
        "CONFESS": str(tmp_path / "confessions"),
        "OPENAI_API_KEY": "sk-none",
        **more,
    }


def confessed(tmp_path: Path) -> set[str]:
    file = tmp_path / "confessions"
    return set(file.read_text().split()) if file.exists() else set()


def start_and_stop_server(command: list[str], cwd: Path, env: dict[str, str]) -> None:
    """`serve` until it is ready, then a graceful end; its own and its children's imports all happen."""
    with subprocess.Popen(
        [*command, "serve", "--port", "0", "--json", "--no-open", "--model", "openai:none"],
        cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        assert Path(f"/proc/{json.loads(line)['pid']}/cwd").resolve() == Path(env["ETUDE_DATA"]).resolve()
        process.terminate()
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 0, errors


def speak_acp(command: list[str], cwd: Path, env: dict[str, str]) -> None:
    """One question on stdin: `acp` starts a private server as its child, answers, and ends."""
    params = {"protocolVersion": 1, "clientCapabilities": {}}
    hello = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    done = subprocess.run(
        [*command, "acp", "--model", "openai:none"],
        cwd=cwd, env=env, input=hello + "\n", capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[0])["result"]["protocolVersion"] == 1


def show_config(command: list[str], cwd: Path, env: dict[str, str]) -> None:
    done = subprocess.run([*command, "config", "show"], cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "agent.mode" in done.stdout


ENTRIES = [[ETUDE], [sys.executable, "-m", "etude"], [sys.executable, str(ROOT / "etude.py")]]
WAYS = [show_config, start_and_stop_server, speak_acp]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("command", ENTRIES, ids=["script", "module", "file"])
def test_nothing_of_the_repository_runs(hostile: Path, tmp_path: Path, command: list[str], way) -> None:
    way(command, hostile, environment(tmp_path))
    assert confessed(tmp_path) == set()


@pytest.mark.parametrize("path", [".", "", "{repository}", ".:{repository}/server"])
@pytest.mark.parametrize("command", ENTRIES, ids=["script", "module", "file"])
def test_none_of_its_rooms_runs_with_pythonpath(
    hostile: Path, tmp_path: Path, command: list[str], path: str
) -> None:
    """What Python itself imports before us, such as `sitecustomize`, cannot be held back by us."""
    show_config(command, hostile, environment(tmp_path, PYTHONPATH=path.format(repository=hostile)))
    assert not confessed(tmp_path) & {*ROOMS, "server.commands"}


@pytest.mark.parametrize("way", [start_and_stop_server, speak_acp])
@pytest.mark.parametrize("command", ENTRIES, ids=["script", "module", "file"])
def test_nor_in_a_server_or_its_children(hostile: Path, tmp_path: Path, command: list[str], way) -> None:
    way(command, hostile, environment(tmp_path, PYTHONPATH="."))
    assert not confessed(tmp_path) & {*ROOMS, "server.commands"}


def test_an_intruder_is_named(hostile: Path, tmp_path: Path) -> None:
    """A stranger's package that neither the directory nor PYTHONPATH explains: refuse, do not guess."""
    code = f"import sys; sys.path.insert(0, {str(hostile)!r}); import etude; etude.main(['--help'])"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert f"'tools' would be imported from {hostile / 'tools'}" in done.stderr
    assert not confessed(tmp_path) & set(ROOMS)


def test_children_inherit_the_protection(hostile: Path, tmp_path: Path) -> None:
    code = (
        "import etude; etude.main(['config', 'show']); import subprocess, sys; "
        "subprocess.run([sys.executable, '-c', 'import os, uvloop; print(uvloop.__file__, "
        'os.environ.get("PYTHONPATH"), os.environ["PYTHONSAFEPATH"], os.getcwd())\'])'
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=hostile, env=environment(tmp_path, PYTHONPATH=str(hostile)), capture_output=True, text=True,
    )  # fmt: skip
    file, pythonpath, safe, cwd = done.stdout.splitlines()[-1].split()
    assert "site-packages" in file
    assert (pythonpath, safe, cwd) == ("None", "1", str(tmp_path / "data"))


def test_relative_arguments_mean_the_callers_directory(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "etude.toml").write_text('[agent]\nmode = "plan"\n')
    env = environment(tmp_path, ETUDE_DATA="data", ETUDE_CONFIG="mine.toml")
    (here / "mine.toml").write_text("[sandbox]\npids = 99\n")
    done = subprocess.run(
        [ETUDE, "config", "show", "--json"], cwd=here, env=env, capture_output=True, text=True
    )
    rows = {row["key"]: row for row in map(json.loads, done.stdout.splitlines()) if "key" in row}
    assert rows["agent.mode"] == {"key": "agent.mode", "value": "plan", "source": str(here / "etude.toml")}
    assert rows["sandbox.pids"]["source"] == str(here / "mine.toml")
    assert rows["store.url"]["value"] == f"sqlite:///{here / 'data' / 'etude.db'}"


def test_a_directory_that_is_gone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    command = f"mkdir {gone} && cd {gone} && rmdir {gone} && exec {ETUDE} --help"
    done = subprocess.run(["sh", "-c", command], env=environment(tmp_path), capture_output=True, text=True)
    assert done.returncode == 2
    assert "no longer exists" in done.stderr


def test_usage_errors_are_2_and_name_the_choice(tmp_path: Path) -> None:
    env = environment(tmp_path)
    for arguments, says in (
        [["nosuch"], "invalid choice"],
        [["serve", "--port", "x"], "--port"],
        [[], "usage"],
    ):
        done = subprocess.run([ETUDE, *arguments], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 2
        assert says in done.stderr
        assert "Traceback" not in done.stderr


def test_an_unwritable_home_still_has_help(tmp_path: Path) -> None:
    env = environment(tmp_path, ETUDE_DATA="/proc/nowhere")
    done = subprocess.run([ETUDE, "--help"], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0
    assert "serve" in done.stdout


def test_a_closed_pipe_is_no_traceback(tmp_path: Path) -> None:
    command = f"{ETUDE} config show --json | head -n 1"
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True
    )
    assert json.loads(done.stdout)["key"]
    assert done.stderr == ""


def test_help_is_fast(tmp_path: Path) -> None:
    """At most 0.1 CPU-seconds, the best of five: no command is imported for it."""
    env, best = environment(tmp_path), 10.0
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([ETUDE, "--help"], env=env, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    assert best <= 0.1


def test_an_unknown_option_shows_the_usage_of_its_command(tmp_path: Path) -> None:
    for arguments, usage in ((["chat", "--nosuch"], "etude chat"), (["--nosuch"], "etude [-h]")):
        done = subprocess.run(
            [ETUDE, *arguments], cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True
        )
        assert done.returncode == 2
        assert done.stderr.startswith(f"usage: {usage}")
        assert "unrecognized arguments: --nosuch" in done.stderr
