"""The server of the Model Context Protocol, for ``sandbox-kernel mcp``.

To add a tool: a method with a docstring, and its ``Tool`` in ``SessionTools.tools``, ``FileTools.tools`` or
``here_tools`` (programs and the report: ``Toolbox``). Clients see its name, docstring and parameters (``mcp_tool.py``).
"""
