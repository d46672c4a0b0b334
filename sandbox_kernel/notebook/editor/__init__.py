"""Completion, inspection, is-complete and history, for magic lines and for Python without a session.

Called by the kernel and the magic. Pure functions.
"""
