"""Tools of real MCP servers, over standard streams and over HTTP."""

import asyncio
import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tools.errors import EnvironmentFault, InvalidArguments, ToolError
from tools.mcp import McpServers, McpSpec
from tools.mcp.tool import McpTool
from tools.result import ToolResult
from tools.sandbox.policy import SandboxPolicy
from tools.tool import Tool
from tools.workspace import Workspace

PROGRAM = str(Path(__file__).parents[2] / "support" / "mcp_server.py")
STDIO = McpSpec("test tools", command=sys.executable, args=(PROGRAM,), env={"KETTLE": "full"})


@pytest.fixture(params=["events", "json"])
def http(request: pytest.FixtureRequest) -> Iterator[McpSpec]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, PROGRAM, str(port), request.param]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield McpSpec("web", url=f"http://127.0.0.1:{port}/mcp", headers={"Authorization": "Bearer t"})
    finally:
        process.kill()
        process.wait()


@contextlib.asynccontextmanager
async def connected(root: Path, *specs: McpSpec) -> AsyncIterator[dict[str, Tool]]:
    servers = McpServers(specs, root)
    try:
        tools, problems = await servers.tools(30)
        assert problems == []
        yield tools
    finally:
        await servers.close()


async def call(tool: Tool, root: Path, said: list[str] | None = None, **arguments: Any) -> ToolResult:
    workspace = Workspace(root, SandboxPolicy(), output_limit=2_000)
    parsed = tool.parse(json.dumps(arguments))
    await tool.propose(parsed, workspace)
    return await tool.run(parsed, workspace, (said if said is not None else []).append)


async def test_tools_are_offered_and_called(tmp_path: Path) -> None:
    async with connected(tmp_path, STDIO) as tools:
        assert "mcp__test_tools__add" in tools and "mcp__test_tools__odd_name_with_signs" in tools
        add = tools["mcp__test_tools__add"]
        schema = add.schema()["function"]
        assert schema["name"] == "mcp__test_tools__add" and schema["description"].startswith("Add two whole")
        assert set(schema["parameters"]["properties"]) == {"a", "b"}
        assert add.schema(brief=True)["function"]["description"] == "Add two whole numbers."
        result = await call(add, tmp_path, a=2, b=40)
        assert (result.text, result.error) == ("42", None)
        assert result.data == {"server": "test tools", "tool": "add", "truncated": False}
        assert (await call(tools["mcp__test_tools__odd_name_with_signs"], tmp_path)).text == "odd"
        proposal = await add.propose(add.parse('{"a": 1, "b": 2}'), Workspace(tmp_path, SandboxPolicy()))
        assert proposal.title == 'test tools: add {"a":1,"b":2}'
        assert add.outside and not add.read_only


async def test_over_http(tmp_path: Path, http: McpSpec) -> None:
    async with connected(tmp_path, http, STDIO) as tools:
        assert next(iter(tools)).startswith("mcp__web__"), "in the order in which they were named"
        assert (await call(tools["mcp__web__add"], tmp_path, a=1, b=1)).text == "2"
        assert (await call(tools["mcp__test_tools__add"], tmp_path, a=1, b=2)).text == "3"


@pytest.mark.parametrize("http", ["json"], indirect=True)
async def test_an_answer_over_http_has_a_bound(tmp_path: Path, http: McpSpec) -> None:
    async with connected(tmp_path, http) as tools:
        much = tools["mcp__web__much"]
        assert (await call(much, tmp_path, size=2_000_000)).data["truncated"]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(EnvironmentFault, match="4 MiB"):
            await call(much, tmp_path, size=200_000_000)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000
        assert (await call(tools["mcp__web__add"], tmp_path, a=1, b=1)).text == "2"


async def test_wrong_arguments_are_named_before_the_server_is_asked(tmp_path: Path) -> None:
    async with connected(tmp_path, STDIO) as tools:
        with pytest.raises(InvalidArguments, match="a: 'x' is not of type 'integer'"):
            tools["mcp__test_tools__add"].parse('{"a": "x", "b": 1}')
        with pytest.raises(InvalidArguments, match="'b' is a required property"):
            tools["mcp__test_tools__add"].parse('{"a": 1}')
        with pytest.raises(InvalidArguments, match="JSON object"):
            tools["mcp__test_tools__add"].parse("[1]")


async def test_failures_of_a_tool_are_results_and_progress_is_shown(tmp_path: Path) -> None:
    async with connected(tmp_path, STDIO) as tools:
        failed = await call(tools["mcp__test_tools__fails"], tmp_path)
        assert failed.error == "environment" and "the kettle is empty" in failed.text
        said: list[str] = []
        result = await call(tools["mcp__test_tools__slow"], tmp_path, said, seconds=0.1)
        assert result.text == "awake" and said == ["half way (1 of 2)\n"]


async def test_long_answers_are_cut_and_kept_whole(tmp_path: Path) -> None:
    async with connected(tmp_path, STDIO) as tools:
        result = await call(tools["mcp__test_tools__much"], tmp_path, size=100_000)
        assert len(result.text) < 2_200 and result.text.startswith("begin ") and result.text.endswith(" end")
        assert result.full is not None and len(result.full) == 100_010 and result.data["truncated"]


async def test_an_endless_message_ends_the_server_and_nothing_else(tmp_path: Path) -> None:
    async with connected(tmp_path, STDIO) as tools:
        began = time.process_time()
        with pytest.raises(
            EnvironmentFault, match=r"(?s)ended during the call.*a message of more than 4 MiB"
        ):
            await call(tools["mcp__test_tools__much"], tmp_path, size=60_000_000)
        assert time.process_time() - began < 3
        assert (await call(tools["mcp__test_tools__add"], tmp_path, a=3, b=4)).text == "7"
        assert (await call(tools["mcp__test_tools__much"], tmp_path, size=2_000_000)).data["truncated"]


async def test_output_without_lines_is_given_up(tmp_path: Path) -> None:
    flood = McpSpec("flood", command="/bin/sh", args=("-c", "cat /dev/zero"))
    servers = McpServers((flood,), tmp_path)
    try:
        began = time.monotonic()
        tools, [problem] = await servers.tools(25)
        assert tools == {} and "a message of more than 4 MiB" in problem and time.monotonic() - began < 20
    finally:
        await servers.close()


async def test_a_server_that_dies_is_said_and_started_again(tmp_path: Path) -> None:
    async with connected(tmp_path, STDIO) as tools:
        with pytest.raises(EnvironmentFault, match=r"(?s)may or may not have acted.*the last words"):
            await call(tools["mcp__test_tools__dies"], tmp_path)
        assert (await call(tools["mcp__test_tools__add"], tmp_path, a=3, b=4)).text == "7"


async def test_a_call_can_be_cancelled(tmp_path: Path) -> None:
    async with connected(tmp_path, STDIO) as tools:
        task = asyncio.create_task(call(tools["mcp__test_tools__slow"], tmp_path, seconds=60))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await call(tools["mcp__test_tools__add"], tmp_path, a=3, b=4)).text == "7"


async def test_the_program_gets_its_own_environment_and_never_runs_in_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_SERVER", "s")
    monkeypatch.chdir(tmp_path)
    async with connected(tmp_path, STDIO) as tools:
        tool = tools["mcp__test_tools__environment"]
        where = (await call(tool, tmp_path, name="KETTLE")).text
        assert where.startswith("full in /") and str(tmp_path) not in where
        assert (await call(tool, tmp_path, name="SECRET_OF_THE_SERVER")).text.startswith("None")


async def test_one_bad_server_does_not_spoil_the_others(tmp_path: Path) -> None:
    mute = McpSpec("mute", command="/bin/sleep", args=("60",))
    servers = McpServers(
        (
            McpSpec("gone", command="/no/such/program"),
            McpSpec("silent", command="/bin/true"),
            McpSpec("closed", url="http://127.0.0.1:9/mcp"),
            McpSpec("chatter", command="/bin/sh", args=("-c", "echo not a protocol; echo why >&2; exit 1")),
            mute,
            STDIO,
        ),
        tmp_path,
    )
    try:
        tools, problems = await servers.tools(10)
        assert "mcp__test_tools__add" in tools
        assert {name.split("__")[1] for name in tools} == {"test_tools"}
        said = "\n".join(problems)
        assert "'gone' could not be used: there is no program '/no/such/program'" in said
        assert "'mute' is not ready yet" in said
        assert "'silent'" in said and "'closed'" in said and "why" in said
        assert (await servers.tools(0))[1] == [], "each problem is told once"
    finally:
        await servers.close()
    assert not [child for child in psutil.Process().children(recursive=True) if "sleep" in child.name()]


SERVER = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tools.mcp import McpServers, McpSpec
from tools.sandbox.policy import SandboxPolicy
from tools.workspace import Workspace

async def main():
    spec = McpSpec("t", command="/bin/sh", args=("-c", f"{sys.executable} {sys.argv[2]}"))
    servers = McpServers([spec], Path("/"))
    tools, problems = await servers.tools(30)
    tool = tools["mcp__t__spawn"]
    arguments = tool.parse('{"seconds": "' + sys.argv[3] + '"}')
    result = await tool.run(arguments, Workspace(Path("/"), SandboxPolicy()), print)
    print("ready", result.text, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.case("agent-29")
async def test_no_process_of_a_server_outlives_a_killed_host(tmp_path: Path) -> None:
    mark = f"86399.{os.getpid()}"
    room = str(Path(__file__).parents[3])
    host = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVER, room, PROGRAM, mark), stdout=asyncio.subprocess.PIPE
    )
    assert host.stdout is not None
    assert (await asyncio.wait_for(host.stdout.readline(), 60)).startswith(b"ready ")
    assert left(mark)
    below = psutil.Process(host.pid).children(recursive=True)
    host.kill()
    await host.wait()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and (left(mark) or any(child.is_running() for child in below)):
        await asyncio.sleep(0.05)
    assert not left(mark) and not any(child.is_running() for child in below)


def left(mark: str) -> list[int]:
    return [p.pid for p in psutil.process_iter(["cmdline"]) if mark in (p.info["cmdline"] or [])]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "needs a name"),
        ({"name": "a"}, "command must be a string"),
        ({"name": "a", "command": "x", "args": "y"}, "args must be a list"),
        ({"name": "a", "command": "x", "env": [{"name": "A"}]}, "env must be a list of {name, value}"),
        ({"name": "a", "type": "sse", "url": "http://a"}, "type 'sse' is not offered"),
        ({"name": "a", "type": "http", "url": "file:///etc/passwd"}, "must be an http or https address"),
        ({"name": " ", "command": "x"}, "needs a name"),
        ({"name": "a", "command": "x\0"}, "NUL"),
    ],
)
def test_a_wrong_description_is_refused_with_what_is_expected(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        McpSpec.of_client(given)


def test_the_shape_of_a_client_is_read() -> None:
    spec = McpSpec.of_client(
        {
            "name": "my server!",
            "command": "npx",
            "args": ["-y", "thing"],
            "env": [{"name": "K", "value": "v"}],
        }
    )
    assert (spec.prefix, spec.shown, spec.env) == ("my_server", "npx -y thing", {"K": "v"})
    assert issubclass(McpTool, Tool) and issubclass(EnvironmentFault, ToolError)
