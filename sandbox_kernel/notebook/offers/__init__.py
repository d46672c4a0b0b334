"""Offers rights that a cell lacked: once, for the session, or never; asks, remembers answers, gives and takes back.

Called by ``execution.py``, ``sandboxes.py`` and ``line_commands.py``. Read ``offer.py`` first.
"""
