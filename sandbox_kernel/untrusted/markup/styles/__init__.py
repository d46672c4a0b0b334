"""Style sheets of a sandbox, scoped: written anew so that they reach only their own output and load nothing.

``markup/scoped_html.py`` calls ``scoped_sheet``; what cannot be scoped is ``NotScoped``, and shown in a frame instead.
Read ``sheet.py`` first.
"""

from __future__ import annotations


class NotScoped(Exception):
    """A style that cannot be confined to its output in a page. The text says why, for tests and readers of code."""
