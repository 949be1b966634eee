"""A real MCP server for tests: it speaks over its standard streams or, given a port, over HTTP: with `json`
behind it in answers of one piece, else in streams of events."""

import asyncio
import os
import subprocess
import sys

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("tests")


@server.tool()
def add(a: int, b: int) -> str:
    """Add two whole numbers.

    The second line is for the full profile.
    """
    return str(a + b)


@server.tool()
async def slow(seconds: float, ctx: Context) -> str:
    """Report progress for a while."""
    await ctx.report_progress(1, 2, "half way")
    await asyncio.sleep(seconds)
    return "awake"


@server.tool()
def much(size: int) -> str:
    """Say a lot."""
    return "begin " + "x" * size + " end"


@server.tool()
def fails() -> str:
    """Raise an error."""
    raise ToolError("the kettle is empty")


@server.tool()
def dies() -> str:
    """End the server's process."""
    sys.stderr.write("the last words\n")
    sys.stderr.flush()
    os._exit(3)


@server.tool()
def environment(name: str) -> str:
    """Say what an environment variable holds, and where the server runs."""
    return f"{os.environ.get(name)} in {os.getcwd()}"


@server.tool()
def spawn(seconds: str) -> str:
    """Leave a child process behind that nobody looks after."""
    child = subprocess.Popen(["sleep", seconds], start_new_session=True)
    return str(child.pid)


@server.tool(name="odd name/with: signs")
def odd() -> str:
    """A name that no model API takes."""
    return "odd"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]), json_response="json" in sys.argv)
    else:
        server.run()
