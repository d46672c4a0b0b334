"""Images: a booted guest written back as a module, and linear memory as a file for sessions.

Read ``bake.py`` first.
"""
