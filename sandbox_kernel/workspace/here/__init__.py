"""A folder of the user, copy-on-write: programs see it, their changes are kept apart, and the user applies them.

Used by ``box`` and ``session``. Read ``here_folder.py`` first, then ``layer_look.py`` and ``applying/``.
"""
