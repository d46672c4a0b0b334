"""The server of the Model Context Protocol, for ``sandbox-kernel mcp``. Read ``tools.py`` and ``toolbox.py`` first."""
