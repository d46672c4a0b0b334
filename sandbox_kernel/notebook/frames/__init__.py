"""Widgets and libraries in the frames of a page: the gate of their messages, and what travels once a notebook.

Used by ``execution.py`` and the kernel. Everything that comes from a frame is hostile. Read ``comm_gate.py`` first.
"""
