"""Reads, writes, walks and removes file trees that a hostile program made, always beneath a root descriptor.

No link, race or ``..`` leads out of the root. Read ``rooted.py`` first.
"""
