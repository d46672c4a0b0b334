"""The facade: ``Sandbox`` and its parts, for users of the library and every door. Read ``sandbox.py`` first."""
