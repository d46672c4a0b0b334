"""Interfaces for agents: one tool (``SandboxTool``), and a server for the Model Context Protocol.

A tool call never raises: bad arguments, timeouts and crashes come back as JSON with a ``status``.
Called by agent frameworks and by ``sandbox-kernel mcp``. Read ``tool.py`` first, then ``mcp/``.
"""
