"""The command line, one command a file; ``cli.py`` loads the one that was asked for.

Exit codes are the program's own, or 124 when a limit ended it. Read ``run.py`` first.
"""
