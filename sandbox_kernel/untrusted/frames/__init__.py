"""Output with scripts, shown in an isolated frame: two sandboxed documents with one policy, and no way out of them.

``frame_output.py`` decides which displays of a session are shown so, and checks frames that it made itself.
``document.py`` makes the documents; ``loader.js`` is the first script inside, read it first.
"""
