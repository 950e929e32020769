"""The Model Context Protocol, both ways: tools of MCP servers as ours, and our tools for MCP clients."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolwright.mcp.client import McpServer
    from toolwright.mcp.client_settings import OAuth, Sampling
    from toolwright.mcp.server_request import Client
    from toolwright.mcp.server_resources import Prompt, Resource
    from toolwright.mcp.server_sessions import per_connection, per_principal
    from toolwright.mcp.tool_server import server

# Each name is imported when it is first used: a server does not need the client, nor a client the server.
_HOMES = {
    "Client": "toolwright.mcp.server_request",
    "McpServer": "toolwright.mcp.client",
    "OAuth": "toolwright.mcp.client_settings",
    "Prompt": "toolwright.mcp.server_resources",
    "Resource": "toolwright.mcp.server_resources",
    "Sampling": "toolwright.mcp.client_settings",
    "per_connection": "toolwright.mcp.server_sessions",
    "per_principal": "toolwright.mcp.server_sessions",
    "server": "toolwright.mcp.tool_server",
}

__all__ = [
    "Client",
    "McpServer",
    "OAuth",
    "Prompt",
    "Resource",
    "Sampling",
    "per_connection",
    "per_principal",
    "server",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'toolwright.mcp' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(home), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
