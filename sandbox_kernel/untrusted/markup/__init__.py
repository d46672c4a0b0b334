"""HTML, SVG, CSS, Markdown and formulas from a sandbox, made inert.

Called by ``sanitize.py``, the only door. Read ``html.py`` first.
"""
