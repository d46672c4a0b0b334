"""Saves the sessions of a notebook by themselves, and offers the last state to the next kernel of that notebook.

Called by ``execution.py`` and ``line_commands.py``. Read ``autosaver.py`` (when), then ``kept_states.py`` (where).
"""
