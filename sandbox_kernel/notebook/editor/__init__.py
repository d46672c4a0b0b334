"""Answers of the editor: completion, inspection, is-complete and history for what this house itself understands.

Called by the kernel and the magic. Pure functions.
"""
