"""A folder of the user, copy-on-write: programs see it, their changes are kept apart, and the user applies them.

Used by ``box`` and ``session``. Read ``overlay_folder.py`` first, then ``layer.py`` and ``apply.py``.
"""
