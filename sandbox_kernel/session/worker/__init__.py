"""The host's side of one worker: its jail, its channel, and its checkpoints.

The worker is hostile: every message is checked (``messages.py``). Read ``worker.py`` first: it orders
checkpoints, goes back to one (the rollback), and keeps the memory limits. ``guest/session/`` is the side in the jail.
"""
