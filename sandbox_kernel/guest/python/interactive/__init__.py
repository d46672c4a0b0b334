"""Interactive output of Python cells: figures and widgets become frames, which the page shows isolated and offline.

``display.py`` passes every MIME bundle through ``convert.py``; ``shell.py`` installs the import hooks of
``renderers.py``. Read ``convert.py`` first.
"""
