"""What came out of a sandbox, made inert: one file for each kind of content.

Text that a program prints and rich values that it displays end up in a page that may drive the Jupyter server. Nothing
here trusts a size, a type or a parser's good mood: each function returns a value that is safe to put on that page, or
raises ``ContentRefused`` with the reason. ``untrusted/sanitize.py`` is the only door.
"""


class ContentRefused(ValueError):
    """Content that cannot be shown; the message is a short reason for the user."""
