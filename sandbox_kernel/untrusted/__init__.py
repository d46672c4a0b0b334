"""Cleans output of a sandbox before a page shows it: one file for each kind of content.

That page can control the Jupyter server. So neither type nor size nor syntax is trusted: each function returns a value
that is safe to show there, or raises ``ContentRefused`` with the reason. All displays pass through ``sanitize.py``.
"""


class ContentRefused(ValueError):
    """Content that cannot be shown; the message is a short reason for the user."""
