"""The Model Context Protocol, both ways: tools of MCP servers as ours, and our tools for MCP clients.

Nothing of the SDK is imported before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolwright.mcp.client import McpServer
    from toolwright.mcp.client_settings import OAuth, Sampling

__all__ = ["McpServer", "OAuth", "Sampling"]

_HOMES = {
    "McpServer": "toolwright.mcp.client",
    "OAuth": "toolwright.mcp.client_settings",
    "Sampling": "toolwright.mcp.client_settings",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'toolwright.mcp' has no attribute {name!r}")
    return getattr(import_module(home), name)
