"""The papermill engine ``sandbox``, which papermill finds by its entry point. Read ``engine.py``."""
