"""The facade: ``Sandbox`` and its parts (runs, sessions, files, fetching).

Called by users of the library and by every door. Read ``sandbox.py`` first.
"""
