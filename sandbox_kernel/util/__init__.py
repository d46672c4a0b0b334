"""What every room of the host uses and that knows none of them: value classes, messages, a loop in a thread, private
folders, late imports.

Imported by every room of the host. Read ``values.py`` first.
"""
