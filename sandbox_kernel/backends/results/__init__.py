"""Makes the result of a run, or the typed error, from what a jail saw and from failures of the host.

Used by every backend and by sessions. Read ``outcome.py`` first.
"""
