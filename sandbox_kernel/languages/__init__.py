"""One file for each language of the process backend: how to find it, what must be readable, which steps run it.

A language never starts a program itself. ``registry.py`` lists them; ``lua.py`` is the shortest example.
"""
