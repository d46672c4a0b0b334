"""Output with scripts, shown in an isolated frame: two sandboxed documents with one policy, and no way out of them.

``sanitize.py`` calls ``framed_output`` for HTML that needs scripts, and ``check_frame`` for frames that a session made.
``document.py`` makes the documents; ``loader.js`` is the first script inside, read it first.
"""
