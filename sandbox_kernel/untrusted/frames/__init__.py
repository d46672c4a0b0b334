"""Output with scripts, shown in an isolated frame: two sandboxed documents with one policy, and no way out of them.

Read ``loader.js`` first, the first script inside. ``frame_output.py`` decides what is shown so.
"""
