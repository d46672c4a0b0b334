"""The commands of the command line. ``cli.py`` imports the module of the one that is used.

The exit code is that of the program, or 124 when a limit ended it. Read ``run.py`` first.
"""
