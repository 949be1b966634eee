"""Tools of MCP servers (Model Context Protocol), offered to the model beside our own.

Import from here what other rooms need; the protocol library itself is imported when the first server is
connected.
"""

from tools.mcp.servers import McpServers
from tools.mcp.spec import McpSpec, McpSpecError

__all__ = ["McpServers", "McpSpec", "McpSpecError"]
