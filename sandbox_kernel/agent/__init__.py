"""Interfaces for agents: one tool (``sandbox_tool.py``), an MCP server (``mcp/``) and a service over HTTP."""
