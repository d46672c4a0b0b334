"""Writing chosen changes to the user's folder: all or nothing, taken back after a crash, never what was not named.

Used by ``here_folder.py``. Read ``apply.py`` first, then ``recovery.py``; ``selection.py`` says what is chosen.
"""
