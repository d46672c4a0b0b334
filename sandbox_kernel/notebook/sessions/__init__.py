"""Which session a cell belongs to, what a running session is given or loses, and what is kept for the next kernel.

Used by ``sandboxes.py`` and ``kernel.py``. Read ``cell_sessions.py`` first.
"""
