"""The Model Context Protocol server: runs, sessions, files and the report of one sandbox as tools.

Called by ``sandbox-kernel mcp``. ``tool_specs.py`` lists the tools, ``toolbox.py`` carries them out; read those first.
"""
