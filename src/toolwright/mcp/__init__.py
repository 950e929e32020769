"""The Model Context Protocol, both ways: tools of MCP servers as ours, and our tools for MCP clients."""
