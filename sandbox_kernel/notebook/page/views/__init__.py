"""What line commands show on a page: changed files, the work folder, the tree of states, a preparation's progress.

Used by ``line_commands.py`` and ``execution.py``. Read ``files_view.py`` first.
"""
