"""Cleans output of a sandbox before a page shows it: one file for each kind of content.

Printed text and displays of a program are shown on a page that can control the Jupyter server. So nothing about them is
trusted, neither type nor size nor syntax: each function returns a value that is safe to show on that page, or raises
``ContentRefused`` with the reason. All displays pass through ``sanitize.py``.
"""


class ContentRefused(ValueError):
    """Content that cannot be shown; the message is a short reason for the user."""
