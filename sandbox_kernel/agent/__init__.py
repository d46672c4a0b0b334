"""Interfaces for agents: one tool (``tool.py``), an MCP server (``mcp/``) and a service over HTTP."""
