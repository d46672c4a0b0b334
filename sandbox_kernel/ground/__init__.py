"""What every room stands on and that knows none of them: quick value classes, text made safe to show, what our own
processes import, and when.

Imported by every room of the host. Read ``values.py`` first.
"""
