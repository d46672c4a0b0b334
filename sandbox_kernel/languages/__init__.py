"""One file for each language of the process backend: how to find it, what it needs to read, which steps run it.

A language never starts a program itself. ``registry.py`` lists them; ``lua.py`` is the shortest example.
"""
