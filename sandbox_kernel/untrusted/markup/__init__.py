"""Cleaners for HTML, SVG, CSS, Markdown and formulas from a sandbox.

Called by ``sanitize.py``. Read ``html.py`` first.
"""
