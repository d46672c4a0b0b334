"""The walls as data: bubblewrap arguments, Landlock rules, the syscall filter. Pure functions; nothing is started here.

Read ``bubblewrap.py`` from top to bottom: it is the list of what a sandbox sees.
"""
