"""The commands of the command line, one for each file. ``cli.py`` imports the one that is used.

The exit code is that of the program, or 124 when a limit ended it. Read ``run.py`` first.
"""
