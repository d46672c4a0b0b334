"""The languages of the process backend: how to find it, what must be readable, which steps run it.

A language never starts a program itself. ``registry.py`` lists them; ``Lua`` in ``interpreters.py`` is the shortest.
"""
