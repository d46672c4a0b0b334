"""The papermill engine ``sandbox``: runs notebooks in a jail and goes on at a cell that failed.

papermill finds it by its entry point. Read ``engine.py`` first.
"""
