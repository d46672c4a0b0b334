"""The commands of the command line. ``cli.py`` imports the module of the one that is used. Read ``run.py`` first."""
